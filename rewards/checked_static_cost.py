"""`CheckedStaticCost`: log of the predicted speedup, for programs that a check found right."""

from __future__ import annotations

from tirgym.harness.status import Status
from tirgym.rewards.reward import Needs, Transition
from tirgym.rewards.static_cost import StaticCost

__all__ = ["CheckedStaticCost"]


class CheckedStaticCost(StaticCost):
    """As `StaticCost`, behind the verdict of an evaluator that need not run anything.

    SEMANTIC_ONLY and PASSED pay what is predicted. A wrong program ends the episode with -penalty, as
    with measured rewards; what the check could not cover (INCOMPLETE) pays nothing. A prediction all
    the same: never a verified speedup.
    """

    needs = Needs.EVERY_STEP

    def _next_level(self, transition: Transition) -> float:
        evaluation = transition.evaluation
        if evaluation is None or evaluation.status not in (Status.SEMANTIC_ONLY, Status.PASSED):
            return self._level
        return super()._next_level(transition)
