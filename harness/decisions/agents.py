"""`DecisionAgent`: whoever answers decision points; the static, random, model and callback agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tirgym.harness.decisions.point import DecisionPoint, Recommendation

if TYPE_CHECKING:
    from tirgym.harness.cost import SpeedupModel
    from tirgym.harness.program import Program

__all__ = [
    "BatchAgent",
    "CallbackAgent",
    "DecisionAgent",
    "ModelAgent",
    "RandomAgent",
    "StaticAgent",
]


class DecisionAgent(Protocol):
    """Any object with this method. Ask it through a `Guard`, which survives what it does wrong."""

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The option to take."""


class BatchAgent(DecisionAgent, Protocol):
    """An agent that can be asked several questions at once, which is cheaper than one by one."""

    def decide_many(self, points: Sequence[DecisionPoint]) -> Sequence[Recommendation | Exception]:
        """An answer to each point, in order; an exception in the place of one that has none."""


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


class ModelAgent:
    """The option whose program, finished with static choices, a model finds fastest.

    Its confidence is the share of the model's members that agree; the static choice wins a tie. It
    makes programs from what stands in the point, so it can answer from anywhere: `start` is only
    needed for the unscheduled program of a workload that has no name. `files` is that of `Retrace`.
    """

    def __init__(
        self, model: SpeedupModel, start: Program | None = None, *, files: bool = True
    ) -> None:
        from tirgym.harness.decisions.retrace import Retrace  # which asks walks, and they agents

        self.model, self._retrace = model, Retrace(start, files=files)

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The answer, with the speedup over the static choice that the model expects.

        Raises InvalidValueError for a point that no walk from its workload leads to.
        """
        walk = self._retrace.walk(point)
        finished = [walk.answer(option).finish().program for option in range(len(point.options))]
        opinions = self.model.opinions(finished)
        expected = opinions.mean(axis=0)
        best = int(expected.argmax())
        if expected[best] <= expected[point.default] + _TIE:
            best = point.default
        agree = opinions[:, best] >= opinions.max(axis=1) - _TIE
        gain = float(np.exp(expected[best] - expected[point.default]))
        speedup = float(np.exp(expected[best]))
        text = f"expects {speedup:.3g}x over unscheduled, {gain:.3g}x over the static choice"
        return Recommendation(best, float(agree.mean()), gain, text)


_TIE = 1e-9
"""Log-speedups closer than this are one."""
