"""`LogSpeedup`: measured log(t_prev / t_new), behind the gate."""

from __future__ import annotations

import math
from typing import Self

from tirgym.errors import EvaluationError, InvalidValueError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.rewards.reward import EpisodeReward, Needs, Transition, on_grid

__all__ = ["LogSpeedup", "log_speedup"]


def log_speedup(evaluation: Evaluation) -> float | None:
    """Log of the speedup over the unscheduled program, None where the verdict pays nothing.

    PASSED pays its measurement, TOO_SLOW the limit at which it was cut off. Raises EvaluationError
    for a TOO_SLOW without its limit.
    """
    if evaluation.speedup is not None:
        return on_grid(math.log(evaluation.speedup))
    if evaluation.status is not Status.TOO_SLOW:
        return None
    limit = evaluation.slowdown_limit
    if limit is None or not limit > 0:
        raise EvaluationError("a TOO_SLOW verdict came without the slowdown limit that it hit")
    return on_grid(-math.log(limit))


class LogSpeedup(EpisodeReward):
    """Pays the log of the speedup against the last program that paid.

    The return of an episode without rejected actions is the log of the speedup of the last program
    that got a number: the final one, unless that was too noisy to time (`info["verified"]` is 0 then).
    Differences
    of at most `noise_floor` (in log units; half the measurement's own 95 % interval where that is
    wider) pay 0 and leave the reference alone, so that noise can neither be collected nor drift.
    Machine code that was paid before in the episode counts with the number it had then.
    """

    needs = Needs.EVERY_STEP

    def __init__(
        self, *, noise_floor: float = 0.03, penalty: float = 1.0, illegal_penalty: float = 0.05
    ) -> None:
        super().__init__(penalty=penalty, illegal_penalty=illegal_penalty)
        if not 0 <= noise_floor < 1:
            raise InvalidValueError("noise_floor", noise_floor, "a number from 0 to below 1")
        self.noise_floor = noise_floor
        self._paid: dict[str, float] = {}

    def reset(self, program: Program) -> None:
        """Start an episode."""
        super().reset(program)
        self._paid = {}

    def _next_level(self, transition: Transition) -> float:
        evaluation = transition.evaluation
        measured = log_speedup(evaluation) if evaluation is not None else None
        if evaluation is None or measured is None:
            return self._level
        key = f"{evaluation.level}:{evaluation.code_key}" if evaluation.code_key else ""
        known = self._paid.get(key)
        if known is None:
            close = abs(measured - self._level) <= self._floor(evaluation)
            known = self._level if close else measured
            if key:
                self._paid[key] = known
        return known

    def _floor(self, evaluation: Evaluation) -> float:
        """Largest difference in log units that counts as noise."""
        if evaluation.measurement is None:
            return self.noise_floor
        low, high = evaluation.measurement.speedup_ci
        half = (math.log(high) - math.log(low)) / 2 if 0 < low <= high < math.inf else 0.0
        return max(self.noise_floor, half)

    def __copy__(self) -> Self:
        made = super().__copy__()
        made._paid = dict(self._paid)
        return made
