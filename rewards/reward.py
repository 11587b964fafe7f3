"""`Reward`: how good a step was, as a function of the transition; the table of reward names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from tirgym.errors import InvalidValueError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.status import FATAL
from tirgym.harness.transforms.base import Transform

__all__ = ["EpisodeReward", "Needs", "Reward", "Transition", "on_grid", "require_penalty"]

_GRID = float(2**30)


def on_grid(x: float) -> float:
    """`x` rounded to a multiple of 2^-30.

    Sums of such numbers below 2^22 are exact in float64, so that returns telescope exactly.
    """
    return round(x * _GRID) / _GRID


class Needs(StrEnum):
    """Which programs a reward needs a verdict on."""

    NOTHING = "nothing"
    """none: it is computed from the IR"""
    FINAL = "final"
    """the program that the episode ends with"""
    EVERY_STEP = "every_step"
    """every new program, and the final one in full"""


@dataclass(frozen=True, slots=True)
class Transition:
    """All that a reward sees of one step."""

    before: Program
    after: Program
    """the program that the episode goes on with; `before` if the action was rejected"""
    transform: Transform | None
    """None: STOP"""
    rejected: bool = False
    """the action was illegal, or what it made does not compile; a no-op"""
    final: bool = False
    """the episode ends with this step"""
    evaluation: Evaluation | None = None
    """the verdict on `after`, None if it was not evaluated"""


class Reward(Protocol):
    """A strategy with the state of one episode; `copy.copy` makes an independent one."""

    @property
    def needs(self) -> Needs:
        """Which programs must be evaluated for it."""

    @property
    def speedup(self) -> float:
        """Speedup over the unscheduled program that has been paid so far, 1 at the start and after a
        fatal verdict."""

    @property
    def total(self) -> float:
        """Sum of the rewards of the episode so far."""

    def reset(self, program: Program) -> None:
        """Start an episode at `program`."""

    def step(self, transition: Transition) -> float:
        """The reward of one step."""


def require_penalty(name: str, value: float) -> float:
    """`value` on the grid; raises InvalidValueError unless it is finite and not negative."""
    if not (math.isfinite(value) and 0 <= value <= 1e6):
        raise InvalidValueError(name, value, "a number from 0 to 1e6")
    return on_grid(value)


class EpisodeReward:
    """What all rewards share: penalties, and the log speedup that has been paid so far.

    A rejected action costs `illegal_penalty`. A fatal verdict takes back what was gained and costs
    `penalty`: the return of the episode is `-penalty`, and lower by what was lost before, so that no
    state is bad enough for a wrong program to pay. Everything else pays the change of `_level`, the
    log of the speedup over the unscheduled program, so that returns telescope.
    """

    needs = Needs.NOTHING

    pays_at_end = False
    """Whether all of the speedup is paid with the last step, so that nothing is left to be paid to an
    episode that was cut off"""

    def __init__(self, *, penalty: float = 1.0, illegal_penalty: float = 0.05) -> None:
        self.penalty = require_penalty("penalty", penalty)
        self.illegal_penalty = require_penalty("illegal_penalty", illegal_penalty)
        self._level = 0.0
        self._total = 0.0

    @property
    def speedup(self) -> float:
        """Speedup that has been paid so far; 1 after a fatal verdict."""
        return math.exp(self._level)

    @property
    def total(self) -> float:
        """Sum of the rewards of the episode so far."""
        return self._total

    def reset(self, program: Program) -> None:
        """Start an episode."""
        self._level = self._total = 0.0

    def step(self, transition: Transition) -> float:
        """The reward of one step."""
        evaluation = transition.evaluation
        if evaluation is not None and evaluation.status in FATAL:
            reward = min(0.0, self._total) - self.penalty - self._total
            self._level = 0.0
        else:
            reward = -self.illegal_penalty if transition.rejected else 0.0
            level = self._next_level(transition)
            reward += level - self._level
            self._level = level
        self._total += reward
        return reward

    def _next_level(self, transition: Transition) -> float:
        """Log speedup after the step, on the grid; `self._level` to pay nothing."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made
