"""`StaticCost`: log of the predicted speedup, from a cost model instead of a measurement."""

from __future__ import annotations

import math

from tirgym.harness.cost import CostModel
from tirgym.harness.program import Program
from tirgym.rewards.reward import EpisodeReward, Needs, Transition, on_grid

__all__ = ["StaticCost"]


class StaticCost(EpisodeReward):
    """Pays log(predicted before / predicted after); deterministic, and never a verified speedup."""

    needs = Needs.NOTHING

    def __init__(
        self, cost: CostModel, *, penalty: float = 1.0, illegal_penalty: float = 0.05
    ) -> None:
        super().__init__(penalty=penalty, illegal_penalty=illegal_penalty)
        self.cost = cost
        self._start_us = 1.0

    def reset(self, program: Program) -> None:
        """Start an episode: predict the time of the program it starts with."""
        super().reset(program)
        self._start_us = self.cost.predict_us(program)

    def _next_level(self, transition: Transition) -> float:
        if transition.after is transition.before:
            return self._level
        return on_grid(math.log(self._start_us / self.cost.predict_us(transition.after)))
