"""`DecisionAgent`: whoever answers decision points; the agents that need no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tirgym.harness.decisions.point import DecisionPoint, Recommendation

__all__ = ["CallbackAgent", "DecisionAgent", "RandomAgent", "StaticAgent"]


class DecisionAgent(Protocol):
    """Any object with this method. Ask it through a `Guard`, which survives what it does wrong."""

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The option to take."""


class StaticAgent:
    """Always the static choice."""

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The default option."""
        return Recommendation(point.default, explanation="the compiler's static choice")


class RandomAgent:
    """Every option is as likely as any other; a seed fixes the sequence."""

    def __init__(self, seed: int | np.random.Generator = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def decide(self, point: DecisionPoint) -> Recommendation:
        """A uniform draw."""
        number = len(point.options)
        return Recommendation(int(self._rng.integers(number)), 1.0 / number, None, "drawn")


class CallbackAgent:
    """Asks a function, such as a policy: it answers an option index or a whole Recommendation."""

    def __init__(self, ask: Callable[[DecisionPoint], int | Recommendation]) -> None:
        self._ask = ask

    def decide(self, point: DecisionPoint) -> Recommendation:
        """What the function answers."""
        answer = self._ask(point)
        return answer if isinstance(answer, Recommendation) else Recommendation(answer)
