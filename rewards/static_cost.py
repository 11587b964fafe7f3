"""`StaticCost`: log of the predicted speedup, from a cost model instead of a measurement."""

from __future__ import annotations

import math

from tirgym.harness.cost import CostModel
from tirgym.harness.program import Program
from tirgym.rewards.predicted import PredictedSpeedup
from tirgym.rewards.reward import on_grid

__all__ = ["StaticCost"]


class StaticCost(PredictedSpeedup):
    """Pays log(predicted before / predicted after), or all of it at the end; deterministic."""

    def __init__(
        self,
        cost: CostModel,
        *,
        penalty: float = 1.0,
        illegal_penalty: float = 0.05,
        every_step: bool = True,
    ) -> None:
        super().__init__(penalty, illegal_penalty, every_step)
        self.cost = cost
        self._start_us = 1.0

    def reset(self, program: Program) -> None:
        """Start an episode: predict the time of the program it starts with."""
        super().reset(program)
        self._start_us = self.cost.predict_us(program)

    def predicted_level(self, program: Program) -> float:
        """Log of the time at the start over the time of `program`."""
        return on_grid(math.log(self._start_us / self.cost.predict_us(program)))
