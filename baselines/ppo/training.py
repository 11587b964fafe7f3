"""`train`: trains a policy in a folder, and goes on there after whatever ended it.

from tirgym.baselines.ppo.training import TrainArgs, train
result = train(TrainArgs(agent="ppo-gnn", steps=100_000, out="runs/gnn"))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirgym.baselines.ppo.extra import require_rl
from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.errors import MissingExtraError, TrainingError

if TYPE_CHECKING:
    from tirgym.baselines.ppo.boundary import Schedule, TrainProgress
    from tirgym.baselines.ppo.vector_env import GroupedVecEnv

__all__ = ["TrainArgs", "TrainResult", "train"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """A training that came to its end."""

    args: TrainArgs
    steps: int
    resumed_from: int
    """steps that were there before; 0 for a new training"""
    seconds: float
    """of this call"""
    steps_per_s: float | None
    """of this call, environments, learner and evaluations included; None if nothing was left"""
    evaluations: tuple[Mapping[str, Any], ...]
    """the lines of `progress.jsonl`"""
    policy: Path
    best: Path
    curve: Path | None
    """None without matplotlib (extra: plot)"""


def train(
    args: TrainArgs, on_progress: Callable[[TrainProgress], None] | None = None
) -> TrainResult:
    """Train until `args.total_steps`, going on from the newest state in the folder `args.out`.

    With a deterministic reward and as many learner threads, a training that was killed and gone on
    with ends with the same weights as one that was not. Raises UnknownNameError, InvalidValueError
    and MissingExtraError for what cannot be trained, and TrainingError when a reward or a loss is no
    number.
    """
    args.check()
    require_rl("training")
    if find_spec("tensorboard") is None:
        raise MissingExtraError("training", "tensorboard", "rl")
    args.spec().make().close()  # what cannot be played is refused before anything is written
    args.eval_spec().choices()

    import torch

    began, threads = time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(args.learner_threads)
    try:
        with RunFolder(args.out) as folder:
            folder.claim(args)
            resumed_from = _run(args, folder, on_progress)
            return _result(args, folder, resumed_from, time.monotonic() - began)
    finally:
        torch.set_num_threads(threads)


def _run(
    args: TrainArgs, folder: RunFolder, on_progress: Callable[[TrainProgress], None] | None
) -> int:
    """Train; answers the steps that it went on from."""
    from torch.utils.tensorboard import SummaryWriter

    from tirgym.baselines.ppo import learner
    from tirgym.baselines.ppo.boundary import Boundary
    from tirgym.baselines.ppo.vector_env import GroupedVecEnv

    with ExitStack() as stack:
        env = GroupedVecEnv(args.spec(), args.envs, args.workers)
        stack.callback(env.close)
        model = learner.make_model(args, env)
        schedule = _resume(args, folder, model, env)
        if args.imitate is not None and not folder.states():
            _imitate(args, model)
        start, save = model.num_timesteps, _saver(args)
        if start < args.total_steps:
            folder.wait_for_a_new_log()
            writer = SummaryWriter(str(folder.tensorboard), purge_step=schedule.logged + 1)
            stack.callback(writer.close)
            boundary = Boundary(args, folder, env, writer, schedule, save, on_progress)
            stack.callback(boundary.close)
            _learn(model, args.total_steps - start, boundary)
        save(model.policy, folder.policy, model.num_timesteps)
        return int(start)


def _imitate(args: TrainArgs, model: Any) -> None:
    """Fit the untrained policy to the best walks that the store holds; draws from the seed alone."""
    from tirgym.baselines.ppo.demonstrations import read_demonstrations
    from tirgym.baselines.ppo.games import game_of
    from tirgym.baselines.ppo.imitation import imitate
    from tirgym.harness.shipped_store import to_read
    from tirgym.harness.store import Store

    game = game_of(args.env, args.shown, costs=args.candidate_costs)
    played = args.spec().make()
    played.close()
    store = Store(to_read(args.imitate), read_only=True)
    try:
        shown = read_demonstrations(store, args.shown_workloads(), game, args.target())
    finally:
        store.close()
    imitate(model, shown, args.imitation_epochs, args.seed, values=played.pays_at_end)


def _learn(model: Any, steps: int, boundary: Any) -> None:
    """`steps` more steps; raises TrainingError when the weights have become no numbers."""
    from tirgym.baselines.ppo import learner

    try:
        model.learn(steps, callback=boundary, log_interval=None, reset_num_timesteps=False)
    except ValueError:  # torch's answer to logits that are no numbers
        if learner.is_finite(model):
            raise
        raise TrainingError(
            f"the weights are no numbers after {model.num_timesteps} steps; train with a lower "
            f"learning rate in another folder"
        ) from None


def _resume(args: TrainArgs, folder: RunFolder, model: Any, env: GroupedVecEnv) -> Schedule:
    """Put the newest state of the folder into model and environments; answers what is due when."""
    from tirgym.baselines.ppo import learner
    from tirgym.baselines.ppo.boundary import Schedule

    states = folder.states()
    if not states:
        folder.keep_rows(-1)
        return Schedule(next_eval=0, next_checkpoint=args.checkpoint_every)
    steps, path = states[-1]
    tensors, facts = folder.load_state(path)
    learner.restore(model, tensors, facts)
    model._last_obs = env.restore(facts["environments"])
    folder.keep_rows(steps)
    return Schedule(**facts["schedule"])


def _saver(args: TrainArgs) -> Callable[[Any, Path, int], None]:
    """Writes a policy as a checkpoint of `tirgym.baselines.ppo.checkpoint`."""
    from tirgym.baselines.ppo.checkpoint import CheckpointHeader, save_policy

    spec = args.spec()
    limits: dict[str, Any] = {} if args.max_steps is None else {"max_steps": args.max_steps}

    def save(policy: Any, path: Path, steps: int) -> None:
        header = CheckpointHeader(
            agent=args.agent,
            environment=args.env,
            suite=args.suite,
            split=args.split if not args.kernels else "",
            kernels=spec.kernels,
            steps=steps,
            reward=args.reward,
            seed=args.seed,
            candidate_costs=args.candidate_costs,
            **limits,
        )
        save_policy(policy, path, header)

    return save


def _result(args: TrainArgs, folder: RunFolder, resumed_from: int, seconds: float) -> TrainResult:
    from tirgym.baselines.ppo.curve import save_curve

    rows = folder.rows()
    curve = save_curve(rows, args, folder.curve) if find_spec("matplotlib") else None
    steps = max(args.total_steps, resumed_from)
    done = steps - resumed_from
    return TrainResult(
        args,
        steps,
        resumed_from,
        seconds,
        done / seconds if done > 0 else None,
        tuple(rows),
        folder.policy,
        folder.best,
        curve,
    )
