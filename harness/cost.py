"""`CostModel`: predicted time of a program without running it; `SpeedupModel`: and how sure of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.program import Program

__all__ = ["CostModel", "SpeedupModel"]


class CostModel(Protocol):
    """Ranks programs of one workload; lower is better."""

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""


class SpeedupModel(CostModel, Protocol):
    """Several opinions on the speedup of a program over its unscheduled one."""

    def opinions(self, programs: Sequence[Program]) -> NDArray[np.float64]:
        """(members, len(programs)): natural logarithms of the speedup, by each member.

        The model's own prediction is the mean over the members.
        """
