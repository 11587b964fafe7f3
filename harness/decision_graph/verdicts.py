"""`settle`: one verdict for a state that several runs, or two levels, judged."""

from __future__ import annotations

from collections.abc import Sequence

from tirgym.harness.run_record import Visit
from tirgym.harness.status import Status

__all__ = ["settle"]

_FOR_EVER = (Status.WRONG_RESULT, Status.FLAKY)
"""What no later pass takes back: the program was caught once."""

_OPEN = (Status.NOISY, Status.INCOMPLETE, Status.SEMANTIC_ONLY)
"""What leaves the question open, so that a less thorough verdict counts more."""

_LEVELS = ("", "training", "full")


def settle(verdicts: Sequence[Visit]) -> Visit | None:
    """The visit whose verdict counts for all of them, None if nobody judged.

    A wrong or flaky result first. Else the most thorough level at which anyone came to a verdict;
    within it the fastest pass, then the first other verdict.
    """
    judged = [visit for visit in verdicts if visit.status]
    if not judged:
        return None
    for status in _FOR_EVER:
        caught = [visit for visit in judged if visit.status == status]
        if caught:
            return caught[0]
    return max(judged, key=_weight)


def _weight(visit: Visit) -> tuple[bool, int, float]:
    return visit.status not in _OPEN, _LEVELS.index(visit.level), visit.speedup or 0.0
