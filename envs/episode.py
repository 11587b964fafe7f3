"""`Episode`: the state of one episode, and the `info` that is made from it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.status import FATAL
from tirgym.rewards.reward import Reward
from tirgym.spaces.graph import IRGraph

__all__ = ["Episode", "LastStep", "View", "make_info"]


@dataclass(frozen=True, slots=True)
class View:
    """A program with what every observation of it needs; immutable, so states share it."""

    program: Program
    graph: IRGraph
    mask: NDArray[np.int8]
    """(n,): legal actions, STOP among them; read-only"""
    workload: str
    """URI"""


@dataclass(frozen=True, slots=True)
class LastStep:
    """What the last step did; empty after a reset."""

    before: Program | None = None
    action: str = ""
    """text form, "STOP", or "" after a reset"""
    legal: bool = True
    """False: the action was rejected and changed nothing"""
    status: str = ""
    """verdict of the step, "" if nothing was evaluated"""
    message: str = ""
    reward: float = 0.0
    code_key: str = ""


@dataclass
class Episode:
    """Everything that a step reads and writes; `snapshot` costs microseconds."""

    view: View
    """the current program"""
    reward: Reward
    seed: int | None = None
    steps: int = 0
    over: bool = False
    began_s: float = 0.0
    """monotonic clock at the reset"""
    best_speedup: float = 1.0
    """most that the reward has paid for a program; 1 after a fatal verdict"""
    code_keys: frozenset[str] = frozenset()
    """machine code that the episode has had evaluated; their number is the trials"""
    final: Evaluation | None = None
    """full verdict on the program that the episode ended with"""
    replayed_from: str = ""
    """machine whose stored verdicts the episode has had, "" as long as there was none"""
    last: LastStep = field(default_factory=LastStep)

    def keep_best(self, evaluation: Evaluation | None) -> None:
        """After a step with that verdict."""
        fatal = evaluation is not None and evaluation.status in FATAL
        self.best_speedup = 1.0 if fatal else max(self.best_speedup, self.reward.speedup)

    @property
    def program(self) -> Program:
        """The current program."""
        return self.view.program

    def snapshot(self) -> Self:
        """An independent copy; views are shared, since they never change."""
        return replace(self, reward=copy.copy(self.reward))

    def saw(self, evaluation: Evaluation) -> None:
        """Count `evaluation` as a trial if its machine code is new to the episode."""
        key = evaluation.code_key or f"ir:{evaluation.ir_key}"
        if key not in self.code_keys:
            self.code_keys = self.code_keys | {key}
        self.replayed_from = evaluation.replayed_from or self.replayed_from


def make_info(episode: Episode, overflow: int) -> dict[str, Any]:
    """The `info` of a reset or step: always the same keys, types and shapes.

    `action_mask` (n,) int8 is a new array. `ir_key` is that of the final program, "" before the
    episode is over, since hashing would take a twentieth of each step. `speedup` is over the
    unscheduled program, as far as the reward has paid it (predicted, with a static reward), and 1 after
    a fatal verdict; `verified` is 1 once the final program passed every regime; `replayed_from` is the fingerprint of
    the machine whose stored numbers the episode was paid by, "" if none was replayed; `trials` counts different machine
    code; `overflow` counts the nodes and edges that the observation has no room for.
    """
    last, view = episode.last, episode.view
    return {
        "action_mask": view.mask.copy(),
        "workload": view.workload,
        "transform": last.action,
        "legal": int(last.legal),
        "status": last.status,
        "message": last.message,
        "ir_key": view.program.ir_key if episode.over else "",
        "code_key": last.code_key,
        "speedup": float(episode.reward.speedup),
        "best_speedup": float(episode.best_speedup),
        "episode_return": float(episode.reward.total),
        "steps": episode.steps,
        "trials": len(episode.code_keys),
        "verified": int(_in_full(episode.final)),
        "replayed_from": episode.replayed_from,
        "overflow": overflow,
    }


def _in_full(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.passed and evaluation.level is Level.FULL
