"""`Evaluator`: the plug point through which every number comes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Protocol

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program

__all__ = ["UNMEASURED", "Evaluator", "make_evaluator"]

UNMEASURED = frozenset({"triton"})
"""Backends whose programs are checked without a device, and never measured."""


class Evaluator(Protocol):
    """Static checks → build → gate → timing → gate again, in an order that nobody can change.

    Subclasses need `evaluate` and `close` alone.
    """

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """Judge and time one program. Never raises for what the program does.

        `fresh` takes nothing from a store: for a number that must not depend on what was measured,
        or written there, before.
        """

    def evaluate_many(
        self,
        programs: Iterable[Program],
        level: Level = Level.TRAINING,
        *,
        fresh: bool = False,
    ) -> Generator[Evaluation, None, None]:
        """The answers of `evaluate`, in order, each as soon as it is known.

        An evaluator may begin the next program before the one at hand is answered; the verdicts
        are those of one call after the other. What was begun and is not asked for, because the
        generator is closed, leaves no trace.
        """
        for program in programs:
            yield self.evaluate(program, level, fresh=fresh)

    def renew(self) -> None:
        """Judge what comes next in a process that has judged nothing before.

        Nothing to do for an evaluator without processes of its own.
        """
        return

    def close(self) -> None:
        """End worker processes; the evaluator cannot be used afterwards."""


def make_evaluator(backend: str = "llvm", store: Any = None) -> Evaluator:
    """The evaluator of this machine for programs of `backend`. `store` is a path or a `Store` of
    measurements, None the user's; backends that measure nothing need none."""
    if backend in UNMEASURED:
        from tirgym.harness.triton.evaluator import SemanticEvaluator

        return SemanticEvaluator()
    from tirgym.harness.local_evaluator import LocalEvaluator

    return LocalEvaluator(store=store)
