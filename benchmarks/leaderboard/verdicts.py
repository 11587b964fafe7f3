"""`judge`: what a claimed answer is worth, from what clean processes measured of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tirgym.benchmarks.leaderboard.entrants import kind_of, reference_of
from tirgym.benchmarks.leaderboard.record import Answer, Kind, Outcome, RecipeKind, Record
from tirgym.harness.speedup_claim import claim_holds
from tirgym.harness.status import Status
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Session", "ShapeVerdict", "Standing", "Verified", "judge", "judge_record"]

RECIPES: Mapping[Kind, frozenset[RecipeKind]] = {
    Kind.AGENT: frozenset({RecipeKind.TRANSFORMS}),
    Kind.PEER: frozenset({RecipeKind.TRANSFORMS, RecipeKind.SCHEDULE}),
}
"""What a row that searches may answer. Any other has one answer for each workload: `reference_of`."""


class Standing(StrEnum):
    """What became of one answer."""

    VERIFIED = "verified"
    FAILED = "failed"
    """counts 0.5, and 0 in fast_p"""
    MISSING = "missing"
    """there is no record; counts like FAILED"""
    UNMEASURED = "unmeasured"
    """not all sessions have been measured yet; counts like FAILED"""
    NOT_APPLICABLE = "not_applicable"
    """a reference that has nothing for the workload: the unscheduled program is kept, which counts 1"""


class ShapeVerdict(StrEnum):
    """What became of a program's recipe at another shape of the kernel."""

    PASSED = "passed"
    NOT_PORTABLE = "not_portable"
    """it does not apply there: no failure"""
    FAILED = "failed"
    """it applies and is wrong, crashes or hangs: a failure of the program"""
    UNJUDGED = "unjudged"
    """it applies and was cut off before it was shown right or wrong, such as in the compiler"""


@dataclass(frozen=True, slots=True)
class Session:
    """What one clean process measured of one recipe on one workload."""

    workload: str
    recipe: str
    """digest of the recipe"""
    session: int
    status: str
    machine: str
    """fingerprint"""
    target: str
    versions: dict[str, str]
    message: str = ""
    speedup: float | None = None
    """unscheduled time / program time, interleaved"""
    speedup_ci: tuple[float, float] | None = None
    best_us: float | None = None
    naive_us: float | None = None
    floor_us: float | None = None
    """time at the roof of this machine's measured roofline"""
    ir_key: str = ""
    code_key: str = ""
    shapes: dict[str, str] = field(default_factory=dict)
    """workload URI of another train or holdout shape → "verdict" or "verdict: why"; session 0 alone"""
    made: str = ""
    protocol: int = 0
    """version of the measuring protocol"""
    concurrent: int = 0
    """other processes of the verification at the same time; timings take turns"""


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on one answer of one record."""

    agent: str
    workload: str
    seed: int
    trials: int
    standing: Standing
    reason: str = ""
    """why it is not verified, or what is wrong with its claim"""
    speedup: float | None = None
    """median over the sessions; VERIFIED alone"""
    low: float | None = None
    """slowest session"""
    high: float | None = None
    sessions: tuple[float, ...] = ()
    """speedup by session, in order of measuring"""
    best_us: float | None = None
    naive_us: float | None = None
    floor_us: float | None = None
    claimed: float | None = None
    claim_holds: bool | None = None
    """None without a claim or a number"""
    shapes: dict[str, int] = field(default_factory=dict)
    """other shapes of the kernel by `ShapeVerdict`"""
    code_key: str = ""
    recipe: str = ""
    """digest of the answer that was judged"""

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What is unique on a board."""
        return self.agent, self.workload, self.seed, self.trials


def judge_record(
    record: Record, sessions: Mapping[tuple[str, str], Sequence[Session]], wanted: int
) -> list[Verified]:
    """A verdict for each trial count of `record`; `sessions` by workload and recipe digest."""
    found = []
    for trials in record.trials:
        answer = record.answer(trials)
        measured: Sequence[Session] = ()
        digest = answer.recipe.digest if answer is not None else ""
        if digest:
            measured = sessions.get((record.workload, digest), ())
        found.append(replace(judge(record, trials, answer, measured, wanted), recipe=digest))
    return found


def judge(
    record: Record,
    trials: int,
    answer: Answer | None,
    sessions: Sequence[Session],
    wanted: int,
) -> Verified:
    """The verdict on one answer: the median over at least `wanted` sessions that all passed the gate."""
    claim = answer.claim.speedup if answer is not None and answer.claim is not None else None
    place = (record.agent, record.workload, record.seed, trials)
    if record.outcome is Outcome.NOT_APPLICABLE and not _required(record):
        return Verified(*place, Standing.NOT_APPLICABLE, record.message)
    reason = _rules(record, trials, answer) or _failure(answer, sessions)
    if reason:
        return Verified(*place, Standing.FAILED, reason, claimed=claim)
    if len(sessions) < wanted:
        text = f"{len(sessions)} of {wanted} sessions measured"
        return Verified(*place, Standing.UNMEASURED, text, claimed=claim)
    timed = [s for s in sessions if s.speedup is not None]
    if 2 * len(timed) <= len(sessions):
        others = ", ".join(sorted({s.status for s in sessions if s.speedup is None}))
        text = f"{len(timed)} of {len(sessions)} sessions gave a number ({others})"
        return Verified(*place, Standing.FAILED, text, claimed=claim)
    ratios = tuple(s.speedup for s in timed if s.speedup is not None)
    speedup = statistics.median(ratios)
    holds = claim_holds(claim, speedup)
    reason = "" if holds in (None, True) else f"claimed {claim:.2f}x, measured {speedup:.2f}x"
    return Verified(
        *place,
        Standing.VERIFIED,
        reason,
        speedup,
        min(ratios),
        max(ratios),
        ratios,
        _median(s.best_us for s in timed),
        _median(s.naive_us for s in timed),
        _median(s.floor_us for s in timed),
        claim,
        holds,
        _counts(sessions),
        timed[0].code_key,
    )


def _required(record: Record) -> bool:
    """Whether the row must answer: one that searches always, another where it has something."""
    if kind_of(record.agent) in RECIPES:
        return True
    return reference_of(record.agent, load_workload(record.workload)) is not None


def _rules(record: Record, trials: int, answer: Answer | None) -> str:
    """What the record itself is refused for, "" if nothing."""
    if kind_of(record.agent) is not record.kind:
        return f"a row called {record.agent} is no {record.kind}"
    if answer is None:
        return record.message or f"no answer at {trials} trials"
    if record.kind not in RECIPES:
        only = reference_of(record.agent, load_workload(record.workload))
        same = only is not None and answer.recipe.digest == only.digest
        return "" if same else f"{record.agent} has another answer for this workload, or none"
    if answer.recipe.kind not in RECIPES[record.kind]:
        return f"a row of kind {record.kind} cannot answer with a {answer.recipe.kind}"
    found_nothing = answer.recipe.kind is RecipeKind.TRANSFORMS and not answer.recipe.steps
    if record.outcome is not Outcome.FINISHED and found_nothing:
        return f"{record.outcome.value}: {record.message}"
    charged = [point for point in record.curve if point.charged]
    if len(charged) > record.trials[-1]:
        return f"{len(charged)} trials spent of {record.trials[-1]}"
    if not record.curve:
        return "no curve shows the trials of the run"
    codes = {point.code_key for point in record.curve if point.trial <= trials}
    if answer.code_key not in codes:
        return f"the answer is not among the first {trials} trials"
    return ""


def _failure(answer: Answer | None, sessions: Iterable[Session]) -> str:
    """The first session that says more than that it could not be timed, "" if none does."""
    for session in sessions:
        if session.status not in (Status.PASSED, Status.NOISY, Status.SUSPECT, Status.TOO_SLOW):
            return f"{session.status}: {session.message}"
        if answer is not None and answer.ir_key and session.ir_key != answer.ir_key:
            return f"makes another program here: IR {session.ir_key}, recorded {answer.ir_key}"
        for uri, verdict in session.shapes.items():
            if verdict.startswith(ShapeVerdict.FAILED):
                return f"at {uri}: {verdict}"
    return ""


def _counts(sessions: Iterable[Session]) -> dict[str, int]:
    """Other shapes by verdict."""
    words = [v.partition(":")[0] for session in sessions for v in session.shapes.values()]
    return {str(kind): words.count(kind) for kind in ShapeVerdict if kind in words}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(known) if known else None
