"""`in_sessions`: measure one thing in several processes; the median of them, or no number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tirgym.errors import InvalidValueError
from tirgym.harness.evaluation import TimingStats
from tirgym.harness.status import Status

__all__ = ["MOST_SESSIONS", "SESSIONS", "Measured", "Sessions", "in_sessions"]

SESSIONS = 3
"""Processes that a number which is reported comes from, unless they disagree …"""
MOST_SESSIONS = 5
"""… or some cannot be measured, and then at most."""
AGREEMENT = 0.1
"""Sessions agree while half of what their intervals span together is no wider than this share of
their median."""


class Measured(Protocol):
    """What one process answers; `speedup`, `speedup_ci` and `stats` are there with PASSED alone."""

    @property
    def status(self) -> Status:
        """Verdict."""

    @property
    def speedup(self) -> float | None:
        """Over the unscheduled program."""

    @property
    def speedup_ci(self) -> tuple[float, float] | None:
        """95 % interval of `speedup` within this process."""

    @property
    def stats(self) -> TimingStats | None:
        """Times of one call."""


Result = TypeVar("Result", bound=Measured)


@dataclass(frozen=True, slots=True)
class Sessions(Generic[Result]):
    """What several processes answered."""

    answer: Result
    """the median session, or the one that says why there is no number"""
    speedups: tuple[float, ...] = ()
    """of all sessions that could be measured, in the order of measuring; () if any was not right"""
    interval: tuple[float, float] | None = None
    """spans the intervals of all sessions; None without a number"""
    message: str = ""
    """how many could be measured, where those are too few for a number"""


def in_sessions(measure: Callable[[], Result], sessions: int = SESSIONS) -> Sessions[Result]:
    """Call `measure`, which answers from a new process each time, until `sessions` passed and agree.

    While they disagree, or some are NOISY, it is called up to `MOST_SESSIONS` times. The answer is
    the session with the median speedup (the lower of two; the slower where speedups are equal). With
    fewer than `sessions` passes it is a NOISY one: the few that got through are those that met a
    quiet moment, and their narrow intervals are no witnesses for the others. Anything else than
    PASSED and NOISY is the answer at once.

    One session is what `measure` answers, once.
    """
    if sessions < 1:
        raise InvalidValueError("sessions", sessions, "a whole number of at least 1")
    most = 1 if sessions == 1 else max(MOST_SESSIONS, sessions + MOST_SESSIONS - SESSIONS)
    found: list[Result] = []
    noisy: list[Result] = []
    while len(found) + len(noisy) < most:
        result = measure()
        if result.status is Status.PASSED:
            found.append(result)
        elif result.status is Status.NOISY:
            noisy.append(result)
        else:
            return Sessions(result)
        if len(found) >= sessions and _agree(found):
            break
    speedups = tuple(_speedup(result) for result in found)
    if len(found) >= sessions:
        return Sessions(_median(found), speedups, _span(found))
    made = f"{len(found)} of {len(found) + len(noisy)} processes could be measured"
    return Sessions(noisy[-1], speedups, None, f"{made}, and a number takes {sessions}")


def _agree(found: Sequence[Measured]) -> bool:
    low, high = _span(found)
    return high - low <= 2.0 * AGREEMENT * _speedup(_median(found))


def _median(found: Sequence[Result]) -> Result:
    """Equal speedups, as those of the unscheduled program over itself, are told apart by time."""

    def rank(result: Result) -> tuple[float, float]:
        return _speedup(result), -result.stats.lower_quartile_us if result.stats else 0.0

    return sorted(found, key=rank)[(len(found) - 1) // 2]


def _speedup(result: Measured) -> float:
    if result.speedup is None:
        raise InvalidValueError("passed session", result, "a speedup")
    return result.speedup


def _span(found: Sequence[Measured]) -> tuple[float, float]:
    intervals = [result.speedup_ci for result in found if result.speedup_ci is not None]
    return min(low for low, _ in intervals), max(high for _, high in intervals)
