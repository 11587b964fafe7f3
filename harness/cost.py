"""`CostModel`: predicted time of a program without running it."""

from __future__ import annotations

from typing import Protocol

from tirgym.harness.program import Program

__all__ = ["CostModel"]


class CostModel(Protocol):
    """Ranks programs of one workload; lower is better."""

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""
