"""Picks the winner of a run: the best candidates, re-measured in full, and one number to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level, Measurement
from tirgym.harness.evaluator import Evaluator
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

SESSIONS = 3
"""Processes that a number which is reported comes from, unless they disagree …"""
MOST_SESSIONS = 5
"""… and then at most."""
AGREEMENT = 0.1
"""Sessions agree while half of what their intervals span together is no wider than this share of
their median."""
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
    evaluation with the median speedup (the lower of two), `sessions` holds all of them, and its
    interval spans those of all sessions: no coverage is claimed for it. If they disagree, up to
    `MOST_SESSIONS` are measured.

    A session without a pass is the answer, except that noisy ones only leave fewer to choose from.
    """
    found: list[Evaluation] = []
    for number in range(1, max(sessions, MOST_SESSIONS) + 1):
        evaluator.renew()
        evaluation = evaluate_in_full(evaluator, program, fresh=True)
        if evaluation.passed:
            found.append(evaluation)
        elif evaluation.status is not Status.NOISY:
            return evaluation
        if number >= sessions and (sessions == 1 or _agree(found)):
            break
    return _median_session(found) if found else evaluation


def _agree(sessions: Sequence[Evaluation]) -> bool:
    """Whether there are any, and their intervals span little."""
    measured = [e.measurement for e in sessions if e.measurement is not None]
    if not measured:
        return False
    low, high = _span(measured)
    return high - low <= 2.0 * AGREEMENT * median_low(m.speedup for m in measured)


def _median_session(sessions: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the median speedup; its interval spans all of theirs."""
    measured = [e.measurement for e in sessions if e.measurement is not None]
    speedups = tuple(m.speedup for m in measured)
    chosen = speedups.index(median_low(speedups))
    return replace(
        sessions[chosen],
        measurement=replace(measured[chosen], speedup_ci=_span(measured)),
        sessions=speedups if len(speedups) > 1 else (),
    )


def _span(measured: Sequence[Measurement]) -> tuple[float, float]:
    return min(m.speedup_ci[0] for m in measured), max(m.speedup_ci[1] for m in measured)


def verify_best(
    ranked: Sequence[Candidate],
    start: Program,
    evaluator: Evaluator,
    top: int = 3,
    on_check: Callable[[Candidate], None] | None = None,
    sessions: int = SESSIONS,
) -> Verdict:
    """The best of `ranked` that holds in full, else the unscheduled program.

    The `top` best candidates that pass in full are compared by that second measurement, since the
    best of many noisy numbers flatters; the winner, rid of steps that do nothing, is then measured
    anew in `sessions` processes (`evaluate_in_sessions`), and that third number, which no store can
    give, is the one to report. Candidates that fail give way to the next in the ranking.
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
        again = Candidate(program, evaluate_in_sessions(evaluator, program, sessions))
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
