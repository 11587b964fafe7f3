"""`Boundary`: what happens between an update and the next rollout: logs, evaluations, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from torch.utils.tensorboard import SummaryWriter

from tirgym.baselines.ppo import learner
from tirgym.baselines.ppo.episode_log import EpisodeLog
from tirgym.baselines.ppo.evaluation import GreedyPlayer, Scores
from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.baselines.ppo.vector_env import GroupedVecEnv
from tirgym.errors import TrainingError

__all__ = ["Boundary", "Schedule", "TrainProgress"]

_LEARNED = {
    "train/entropy": ("train/entropy_loss", -1.0),
    "train/value_loss": ("train/value_loss", 1.0),
    "train/policy_loss": ("train/policy_gradient_loss", 1.0),
    "train/loss": ("train/loss", 1.0),
    "train/approx_kl": ("train/approx_kl", 1.0),
    "train/clip_fraction": ("train/clip_fraction", 1.0),
    "train/explained_variance": ("train/explained_variance", 1.0),
}
"""Name in the logs → what MaskablePPO calls it, and its sign."""


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """How far a training is."""

    steps: int
    total: int
    text: str
    """the newest figures, in words"""


@dataclass(slots=True)
class Schedule:
    """When things are due, in steps; part of a training's state."""

    next_eval: int
    next_checkpoint: int
    logged: int = -1
    """steps of the last boundary"""
    best: float = -math.inf
    """highest geometric mean of an evaluation"""
    seconds: float = 0.0
    """that the training took until the last boundary, interruptions left out"""


class Boundary(BaseCallback):  # type: ignore[misc]
    """Watches a training, and acts at its borders between update and rollout."""

    def __init__(
        self,
        args: TrainArgs,
        folder: RunFolder,
        env: GroupedVecEnv,
        writer: SummaryWriter,
        schedule: Schedule,
        save_policy: Callable[[Any, Path, int], None],
        on_progress: Callable[[TrainProgress], None] | None = None,
    ) -> None:
        super().__init__()
        self._args, self._folder, self._env, self._writer = args, folder, env, writer
        self._schedule, self._save_policy, self._tell = schedule, save_policy, on_progress
        self._player: GreedyPlayer | None = None
        self._log = EpisodeLog()
        self._text, self._began = "", time.monotonic()

    def close(self) -> None:
        """End the environment of evaluations."""
        if self._player is not None:
            self._player.close()

    def _on_step(self) -> bool:
        self._log.see(self.locals["infos"])
        if self._tell is not None:
            self._tell(TrainProgress(self.num_timesteps, self._args.total_steps, self._text))
        return True

    def _on_rollout_start(self) -> None:
        self._at_boundary(last=False)

    def _on_training_end(self) -> None:
        self._at_boundary(last=True)

    def _at_boundary(self, last: bool) -> None:
        steps, schedule = self.model.num_timesteps, self._schedule
        if steps == schedule.logged:
            return
        now = time.monotonic()
        schedule.seconds, self._began = schedule.seconds + now - self._began, now
        before, schedule.logged = schedule.logged, steps
        figures = self._figures(steps, steps - max(before, 0))
        if last or steps >= schedule.next_eval:
            schedule.next_eval = _after(steps, self._args.eval_every)
            self._evaluate(steps, figures)
        self._write(figures, steps)
        if last or steps >= schedule.next_checkpoint:
            schedule.next_checkpoint = _after(steps, self._args.checkpoint_every)
            self._checkpoint(steps)

    def _figures(self, steps: int, done: int) -> dict[str, float]:
        """What the rollout and the update until here came to; raises TrainingError for no number."""
        learned = dict(self.model.logger.name_to_value)
        self.model.logger.dump(steps)
        figures = {f"rollout/{name}": value for name, value in self._log.take().items()}
        for name, (source, sign) in _LEARNED.items():
            if source in learned:
                figures[name] = sign * float(learned[source])
        if not math.isfinite(figures.get("train/loss", 0.0)):
            raise TrainingError(
                f"the loss is {figures['train/loss']} after {steps} steps; train with a lower "
                f"learning rate in another folder"
            )
        return figures

    def _evaluate(self, steps: int, figures: dict[str, float]) -> None:
        """Play the held-out kernels; adds to `figures` and to `progress.jsonl`."""
        if self._player is None:
            self._player = GreedyPlayer(self._args.eval_spec())
        scores = self._player.play(self.model.policy)
        self._folder.append(
            {
                "steps": steps,
                "seconds": round(self._schedule.seconds, 3),
                "geomean_speedup": scores.geomean,
                "verified_speedup": scores.verified_geomean,
                "mean_return": scores.mean_return,
                "played": [asdict(played) for played in scores.played],
                "figures": figures,
            }
        )
        figures |= _eval_figures(scores)
        self._text = f"val {scores.geomean:.2f}x"
        if scores.geomean > self._schedule.best:
            self._schedule.best = scores.geomean
            self._save_policy(self.model.policy, self._folder.best, steps)

    def _write(self, figures: Mapping[str, float], steps: int) -> None:
        for name, value in sorted(figures.items()):
            self._writer.add_scalar(name, value, steps)
        self._writer.add_scalar("time/seconds", self._schedule.seconds, steps)
        self._writer.flush()

    def _checkpoint(self, steps: int) -> None:
        tensors, facts = learner.snapshot(self.model)
        facts |= {"schedule": asdict(self._schedule), "environments": self._env.state()}
        self._folder.save_state(steps, tensors, facts)


def _after(steps: int, every: int) -> int:
    """The first multiple of `every` after `steps`."""
    return steps - steps % every + every


def _eval_figures(scores: Scores) -> dict[str, float]:
    figures = {
        "eval/geomean_speedup": scores.geomean,
        "eval/mean_return": scores.mean_return,
        "eval/invalid_actions": float(sum(played.invalid for played in scores.played)),
    }
    if scores.verified_geomean is not None:
        figures["eval/verified_speedup"] = scores.verified_geomean
    for played in scores.played:
        kernel = played.workload.rpartition("/")[2].partition("?")[0]
        figures[f"eval_speedup/{kernel}"] = played.speedup
    return figures
