"""Trick: a time of next to nothing, which no machine can reach: the work was not done, or not timed."""

from __future__ import annotations

import pytest
from boards import record, session
from handmade import host, quick, tiled

from tirgym.benchmarks.leaderboard.statistics import fast_p, ranked
from tirgym.benchmarks.leaderboard.verdicts import Standing, judge
from tirgym.harness.evaluation import Level
from tirgym.harness.hardware import roofline_floor_us
from tirgym.harness.status import Status


@pytest.mark.parametrize("level", list(Level))
def test_faster_than_the_hardware_is_suspect_and_no_number(level: Level) -> None:
    with quick(floor_us=lambda *_: 1e9) as evaluator:
        found = evaluator.evaluate(tiled(), level)
    assert (found.status, found.measurement) == (Status.SUSPECT, None)


def test_the_floor_of_real_work_is_no_joke() -> None:
    """512 x 512 x 512 multiply-adds in less than 20 µs on one core is no matter of skill."""
    assert roofline_floor_us(2 * 512**3, 3 * 4 * 512**2, host()) > 20.0


def test_an_answer_that_is_always_suspect_counts_as_a_failure() -> None:
    made = record()
    found = judge(
        made, 2, made.answers[0], [session(None, n, status="suspect") for n in range(3)], 3
    )
    assert (found.standing, found.speedup) == (Standing.FAILED, None)
    speedups = [[float("nan") if found.speedup is None else found.speedup]]
    assert ranked(speedups) == 0.5
    assert fast_p(speedups, 0.0) == 0.0
