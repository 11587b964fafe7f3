"""`ModelSpeedup`: log of the speedup that a learned model expects, less what it is unsure of."""

from __future__ import annotations

import math

from tirgym.errors import InvalidValueError
from tirgym.harness.cost import SpeedupModel
from tirgym.harness.program import Program
from tirgym.rewards.predicted import PredictedSpeedup
from tirgym.rewards.reward import on_grid

__all__ = ["ModelSpeedup"]


class ModelSpeedup(PredictedSpeedup):
    """Pays the change of the expected log speedup, or all of it at the end.

    `doubt` standard deviations of the model's members are taken off, so that a policy does not learn
    to find what the model only believes in: 0 pays what the model expects, 1 is careful.
    """

    def __init__(
        self,
        model: SpeedupModel,
        *,
        doubt: float = 0.0,
        penalty: float = 1.0,
        illegal_penalty: float = 0.05,
        every_step: bool = True,
    ) -> None:
        super().__init__(penalty, illegal_penalty, every_step)
        if not (math.isfinite(doubt) and doubt >= 0):
            raise InvalidValueError("doubt", doubt, "a number of standard deviations, 0 or more")
        self.model, self.doubt = model, doubt
        self._start = 0.0

    def reset(self, program: Program) -> None:
        """Start an episode: what the model says of the program it starts with."""
        super().reset(program)
        self._start = self._expected(program)

    def _expected(self, program: Program) -> float:
        opinions = self.model.opinions([program])[:, 0]
        return float(opinions.mean() - self.doubt * opinions.std())

    def predicted_level(self, program: Program) -> float:
        """What is expected of `program` over what was of the start."""
        return on_grid(self._expected(program) - self._start)
