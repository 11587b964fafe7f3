"""`Evaluator`: the plug point through which every number comes."""

from __future__ import annotations

from typing import Protocol

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program

__all__ = ["Evaluator"]


class Evaluator(Protocol):
    """Static checks → build → gate → timing → gate again, in an order that nobody can change."""

    def evaluate(self, program: Program, level: Level = Level.TRAINING) -> Evaluation:
        """Judge and time one program. Never raises for what the program does."""

    def close(self) -> None:
        """End worker processes; the evaluator cannot be used afterwards."""
