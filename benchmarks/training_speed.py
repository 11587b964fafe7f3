"""Speed of training: `python -m tirgym.benchmarks.training_speed --json`.

Static training of a policy on the train families of core-v0, end to end: environments, inference
and learner. The first rollout, in which everything is met for the first time, is left out of the
rates. Aims on two cores: 250 steps/s with ppo-gnn, under 2 GB of all processes together. CPU time
stands beside wall time, which says little on a busy machine.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

import psutil
import typer
from rich.console import Console
from rich.table import Table

from tirgym.baselines.ppo.extra import require_rl
from tirgym.baselines.ppo.train_args import TrainArgs

__all__ = ["PeakMemory", "SpeedReport", "main", "measure"]

_SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """One training; times are wall seconds unless they say otherwise."""

    agent: str
    env: str
    envs: int
    workers: int
    learner_threads: int
    cores: int
    """that the process may use"""
    start_s: float
    """until the first observations"""
    steps: int
    """after the first rollout"""
    steps_per_s: float
    environment_s: float
    """in steps of environments"""
    inference_s: float
    """in rollouts, outside the environments: the policy, and what the rollout buffer takes"""
    learner_s: float
    """in updates"""
    cpu_s: float
    """of all processes"""
    cpu_ms_per_step: float
    learner_cpu_ms_per_step: float
    """of the process that learns: inference and updates"""
    peak_mb: float
    """resident memory of all processes together, shared pages counted in each"""


class PeakMemory:
    """The peak of the resident memory of this process and its children: sampled now and then, and at
    the end in any case, however short the training was."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        used = 0
        for process in _processes():
            try:
                used += process.memory_info().rss
            except psutil.NoSuchProcess:  # ended meanwhile
                continue
        self.peak_bytes = max(self.peak_bytes, used)


def _processes() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _cpu_s() -> tuple[float, float]:
    """User and system time of this process, and of it and its children."""
    each = [process.cpu_times() for process in _processes()]
    times = [t.user + t.system for t in each]
    return times[0], sum(times)


def _clock(env: Any) -> Any:
    """A callback that keeps (seconds, environment seconds, CPU) at the ends of rollouts."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Clock(BaseCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.starts: list[tuple[float, float, tuple[float, float]]] = []
            self.ends: list[float] = []

        def _on_rollout_start(self) -> None:
            self.starts.append((time.perf_counter(), env.busy_s, _cpu_s()))

        def _on_rollout_end(self) -> None:
            self.ends.append(time.perf_counter())

        def _on_training_end(self) -> None:
            self._on_rollout_start()

        def _on_step(self) -> bool:
            return True

    return Clock()


def measure(args: TrainArgs) -> SpeedReport:
    """Train `args.total_steps` without evaluations and checkpoints, and time it."""
    require_rl("the benchmark of training")
    import torch

    from tirgym.baselines.ppo.learner import make_model
    from tirgym.baselines.ppo.vector_env import GroupedVecEnv, default_workers

    torch.set_num_threads(args.learner_threads)
    with ExitStack() as stack:
        memory = stack.enter_context(PeakMemory())
        began = time.perf_counter()
        env = GroupedVecEnv(args.spec(), args.envs, args.workers)
        stack.callback(env.close)
        model = make_model(args, env)
        model._last_obs = env.reset()
        start_s = time.perf_counter() - began
        clock = _clock(env)
        model.learn(args.total_steps, callback=clock, log_interval=None)
        (first_s, first_env_s, first_cpu), (last_s, last_env_s, last_cpu) = (
            clock.starts[1], clock.starts[-1],
        )  # fmt: skip
        rollouts_s = sum(
            end - start[0] for start, end in zip(clock.starts[1:-1], clock.ends[1:], strict=True)
        )
    steps = args.total_steps - args.rollout
    total_s, environment_s = last_s - first_s, last_env_s - first_env_s
    cpu_s = last_cpu[1] - first_cpu[1]
    return SpeedReport(
        agent=args.agent,
        env=args.env,
        envs=args.envs,
        workers=default_workers(args.envs) if args.workers is None else args.workers,
        learner_threads=args.learner_threads,
        cores=len(psutil.Process().cpu_affinity()),
        start_s=round(start_s, 2),
        steps=steps,
        steps_per_s=round(steps / total_s, 1),
        environment_s=round(environment_s, 2),
        inference_s=round(rollouts_s - environment_s, 2),
        learner_s=round(total_s - rollouts_s, 2),
        cpu_s=round(cpu_s, 2),
        cpu_ms_per_step=round(1e3 * cpu_s / steps, 3),
        learner_cpu_ms_per_step=round(1e3 * (last_cpu[0] - first_cpu[0]) / steps, 3),
        peak_mb=round(memory.peak_bytes / 1e6, 1),
    )


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    agent: Annotated[str, typer.Option(help="ppo-gnn or ppo-mlp.")] = TrainArgs.agent,
    env: Annotated[str, typer.Option(help="Id of the environment.")] = TrainArgs.env,
    kernels: Annotated[str, typer.Option(help="Names with commas; empty: the split.")] = "",
    steps: Annotated[int, typer.Option(min=2, help="Environment steps.")] = 12_288,
    envs: Annotated[int, typer.Option(min=1)] = TrainArgs.envs,
    workers: Annotated[int | None, typer.Option(min=0)] = None,
    rollout: Annotated[int, typer.Option(min=2)] = TrainArgs.rollout,
    batch: Annotated[int, typer.Option(min=2)] = TrainArgs.batch,
    epochs: Annotated[int, typer.Option(min=1)] = TrainArgs.epochs,
    learner_threads: Annotated[int, typer.Option(min=1)] = TrainArgs.learner_threads,
) -> None:
    """Measure and print."""
    args = TrainArgs(
        agent=agent,
        env=env,
        kernels=tuple(name for name in kernels.split(",") if name),
        steps=steps,
        envs=envs,
        workers=workers,
        rollout=rollout,
        batch=batch,
        epochs=epochs,
        learner_threads=learner_threads,
    )
    args.check()
    if args.total_steps < 2 * rollout:
        raise typer.BadParameter(f"--steps: {steps}; expected at least two rollouts of {rollout}")
    report = asdict(measure(args))
    if as_json:
        print(json.dumps({"training_speed": report}, indent=2))
        return
    table = Table("figure", "value")
    for name, value in report.items():
        table.add_row(name, str(value))
    Console().print(table)


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
