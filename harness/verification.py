"""Picks the winner of a run: the best candidates, re-measured in full, and one number to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.shorten import shorten
from tirgym.harness.status import Status

__all__ = ["Verdict", "check_best", "evaluate_in_full", "verify_best"]

_NOISY_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The program to keep, its full evaluation, and all that was checked on the way."""

    candidate: Candidate
    """the winner; its evaluation is at `Level.FULL` and independent of the choice"""
    checked: tuple[Candidate, ...]
    """full evaluations that the choice was made from, in the order of the search's ranking"""


def evaluate_in_full(evaluator: Evaluator, program: Program, *, fresh: bool = False) -> Evaluation:
    """`program` at `Level.FULL`: fresh seeds, every regime; asked again while NOISY, three times.

    `fresh` takes no stored verdict.
    """
    evaluation = evaluator.evaluate(program, Level.FULL, fresh=fresh)
    for _ in range(_NOISY_RETRIES):
        if evaluation.status is not Status.NOISY:
            break
        evaluation = evaluator.evaluate(program, Level.FULL, fresh=fresh)
    return evaluation


def verify_best(
    ranked: Sequence[Candidate],
    start: Program,
    evaluator: Evaluator,
    top: int = 3,
    on_check: Callable[[Candidate], None] | None = None,
) -> Verdict:
    """The best of `ranked` that holds in full, else the unscheduled program.

    The `top` best candidates that pass in full are compared by that second measurement, since the
    best of many noisy numbers flatters; the winner, rid of steps that do nothing, is then measured
    once more, and that third number, which no store can give, is the one to report. Candidates that
    fail give way to the next in the ranking.
    """
    checked: list[Candidate] = []

    def check(program: Program) -> Candidate:
        candidate = Candidate(program, evaluate_in_full(evaluator, program))
        checked.append(candidate)
        if on_check is not None:
            on_check(candidate)
        return candidate

    passed: list[Candidate] = []
    for candidate in ranked:
        if len(passed) == top:
            break
        full = check(candidate.program)
        if full.evaluation.passed:
            passed.append(full)
    for winner in sorted(passed, key=lambda c: -(c.evaluation.speedup or 0.0)):
        program = shorten(winner.program, start)
        again = Candidate(program, evaluate_in_full(evaluator, program, fresh=True))
        speedup = again.evaluation.speedup
        if speedup is not None and (speedup >= 1.0 or program.ir_key == start.ir_key):
            return Verdict(again, tuple(checked))
    naive = Candidate(start, evaluate_in_full(evaluator, start, fresh=True))
    return Verdict(naive, tuple(checked))


def check_best(
    ranked: Sequence[Candidate],
    start: Program,
    evaluator: Evaluator,
    on_check: Callable[[Candidate], None] | None = None,
) -> Verdict:
    """As `verify_best` where nothing is measured: the first of `ranked`, by prediction, that is right
    in every regime with inputs drawn anew, else the unscheduled program with its own verdict."""
    checked: list[Candidate] = []
    for candidate in ranked:
        program = shorten(candidate.program, start)
        full = Candidate(program, evaluator.evaluate(program, Level.FULL, fresh=True))
        checked.append(full)
        if on_check is not None:
            on_check(full)
        if full.evaluation.status is Status.SEMANTIC_ONLY:
            return Verdict(full, tuple(checked))
    naive = Candidate(start, evaluator.evaluate(start, Level.FULL, fresh=True))
    return Verdict(naive, tuple(checked))
