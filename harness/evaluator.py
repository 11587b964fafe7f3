"""`Evaluator`: the plug point through which every number comes."""

from __future__ import annotations

from typing import Protocol

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program

__all__ = ["Evaluator"]


class Evaluator(Protocol):
    """Static checks → build → gate → timing → gate again, in an order that nobody can change."""

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """Judge and time one program. Never raises for what the program does.

        `fresh` takes nothing from a store: for a number that must not depend on what was measured,
        or written there, before.
        """

    def close(self) -> None:
        """End worker processes; the evaluator cannot be used afterwards."""
