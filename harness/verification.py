"""Picks the winner of a run: the best candidates, re-measured in full, and one number to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.in_sessions import SESSIONS, in_sessions
from tirgym.harness.program import Program
from tirgym.harness.shorten import shorten
from tirgym.harness.status import Status

__all__ = [
    "SESSIONS",
    "Verdict",
    "check_best",
    "evaluate_in_full",
    "evaluate_in_sessions",
    "verify_best",
]

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


def evaluate_in_sessions(
    evaluator: Evaluator, program: Program, sessions: int = SESSIONS
) -> Evaluation:
    """`program` in full and anew in several processes, one after the other: the median session.

    Within a process, times differ by what the machine does from one millisecond to the next, and
    the bootstrap interval tells by how much. Between processes they also differ by where memory
    lies and by what else the machine's hardware is busy with for seconds, which no interval of one
    session can show. So each session is a new worker with its own inputs; the answer is the
    evaluation with the median speedup (the lower of two), `sessions` holds all that were measured,
    and its interval spans those of all of them: no coverage is claimed for it.

    If they disagree, or some are NOISY, up to five are measured. Fewer than `sessions`
    passes give no number: the answer is then NOISY, its message says how many could be measured, and
    `sessions` what they showed, which is no claim. A wrong result or any other failure of one session
    is the answer, without numbers. With one session, the answer is that of `evaluate_in_full`.
    """

    def measure() -> Evaluation:
        evaluator.renew()
        return evaluate_in_full(evaluator, program, fresh=True)

    found = in_sessions(measure, sessions)
    answer, measured = found.answer, found.answer.measurement
    if sessions == 1:
        return answer
    if measured is not None and found.interval is not None:
        spanning = replace(measured, speedup_ci=found.interval)
        return replace(answer, measurement=spanning, sessions=found.speedups)
    if found.message:
        message = f"{found.message} ({answer.message})" if answer.message else found.message
        return replace(answer, message=message, sessions=found.speedups)
    return answer


def verify_best(
    ranked: Sequence[Candidate],
    start: Program,
    evaluator: Evaluator,
    top: int = 3,
    on_check: Callable[[Candidate], None] | None = None,
    sessions: int = SESSIONS,
) -> Verdict:
    """The best of `ranked` that holds in full, else the unscheduled program, measured as the winner.

    The `top` best candidates that pass in full are compared by that second measurement, since the
    best of many noisy numbers flatters; the winner, rid of steps that do nothing, is then measured
    anew in `sessions` processes (`evaluate_in_sessions`), and that third number, which no store can
    give, is the one to report. Candidates that fail give way to the next in the ranking.

    If none has such a number, and some that had been faster than the unscheduled program could not
    be measured again (NOISY), the first of those is the answer, without a number: that the
    unscheduled program is the best was not shown.
    """
    checked: list[Candidate] = []

    def check(program: Program) -> Candidate:
        candidate = Candidate(program, evaluate_in_full(evaluator, program))
        checked.append(candidate)
        if on_check is not None:
            on_check(candidate)
        return candidate

    passed: list[Candidate] = []
    early: list[Candidate] = []
    for candidate in ranked:
        if len(passed) == top:
            break
        full = check(candidate.program)
        if full.evaluation.passed:
            passed.append(full)
        elif _lost(candidate, full):
            early.append(full)
    late: list[Candidate] = []
    for winner in sorted(passed, key=lambda c: -(c.evaluation.speedup or 0.0)):
        program = shorten(winner.program, start)
        if program.ir_key == start.ir_key:
            break
        again = Candidate(program, evaluate_in_sessions(evaluator, program, sessions))
        if (again.evaluation.speedup or 0.0) >= 1.0:
            return Verdict(again, tuple(checked))
        if _lost(winner, again):
            late.append(again)
    for unmeasured in (*late, *early):
        return Verdict(unmeasured, tuple(checked))
    naive = Candidate(start, evaluate_in_sessions(evaluator, start, sessions))
    return Verdict(naive, tuple(checked))


def _lost(before: Candidate, now: Candidate) -> bool:
    """Whether a program that had been faster than the unscheduled one cannot be measured now."""
    return now.evaluation.status is Status.NOISY and (before.evaluation.speedup or 0.0) > 1.0


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
