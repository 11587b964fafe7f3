"""Statistics against their published definitions, with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tirgym.benchmarks.leaderboard.statistics import (
    UNVERIFIED,
    fast_p,
    geomean,
    improvement,
    improvement_interval,
    interval,
    iqm,
    median,
    profile,
    ranked,
    ratio_interval,
    unclipped,
)
from tirgym.errors import InvalidValueError

SCORES = np.array([[1.0, 4.0, 2.0, 8.0], [3.0, 6.0, 2.0, 16.0], [2.0, 8.0, 5.0, 12.0]])
"""Three seeds, four workloads."""


def test_aggregates_by_hand() -> None:
    # means over seeds: 2, 6, 3, 12; their median is (3 + 6) / 2
    assert median(SCORES) == 4.5
    # sorted: 1 2 2 2 3 4 | 5 6 8 8 12 16; 12 // 4 = 3 left out at each end: 2 3 4 5 6 8
    assert iqm(SCORES) == pytest.approx((2 + 3 + 4 + 5 + 6 + 8) / 6)
    assert geomean(SCORES) == pytest.approx(np.prod(SCORES) ** (1 / 12))


def test_iqm_is_the_trimmed_mean_of_scipy_and_rliable() -> None:
    """scipy.stats.trim_mean(x, 0.25) cuts int(0.25 n) values at each end: 1 of 5, 1 of 7, 2 of 8."""
    assert iqm([[100.0, 1.0, 2.0, 3.0, -9.0]]) == 2.0
    assert iqm([[7.0], [1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]) == 4.0
    assert iqm([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 100.0]]) == (3 + 4 + 5 + 6) / 4


def test_profile_is_the_share_of_runs_above_each_score() -> None:
    assert profile(SCORES, [0.0, 2.0, 5.5, 16.0]).tolist() == [1.0, 8 / 12, 5 / 12, 0.0]


def test_improvement_counts_pairs_by_workload_and_halves_ties() -> None:
    one = np.array([[1.0, 5.0], [3.0, 5.0]])
    two = np.array([[2.0, 5.0], [0.0, 5.0], [3.0, 4.0]])
    # workload 1: of six pairs 1>0, 3>2, 3>0 win, 3=3 ties: 3.5 / 6; workload 2: two win, four tie: 4 / 6
    assert improvement(one, two) == pytest.approx((3.5 / 6 + 4 / 6) / 2)
    assert improvement(one, two) + improvement(two, one) == pytest.approx(1.0)
    assert improvement(one, one) == 0.5


def test_fast_p_of_kernelbench() -> None:
    """Correct and faster than p; what is not correct is never fast."""
    speedups = [[0.8, 1.5, np.nan], [1.0, 3.0, np.inf]]
    assert fast_p(speedups, 0.0) == pytest.approx(4 / 6)
    assert fast_p(speedups, 1.0) == pytest.approx(2 / 6)
    assert fast_p(speedups, 2.0) == pytest.approx(1 / 6)


def test_the_bootstrap_resamples_seeds_within_workloads() -> None:
    """Workloads that do not vary add nothing, however different they are from each other."""
    steady = np.array([[1.0, 100.0], [1.0, 100.0], [1.0, 100.0]])
    assert interval(steady, geomean) == pytest.approx((10.0, 10.0))
    found = interval(SCORES, iqm)
    assert found is not None
    assert found[0] < iqm(SCORES) < found[1]
    assert interval(SCORES, iqm) == found  # the same draws every time


def test_the_interval_of_a_mean_of_two_seeds_by_enumeration() -> None:
    """One workload, seeds 1 and 3: resampled means are 1, 2, 2, 3 with equal chance."""
    found = interval(np.array([[1.0], [3.0]]), median)
    assert found == (1.0, 3.0)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Rough: percentile intervals of a few seeds are known to be a little narrow."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        found = interval(rng.normal(0.0, 1.0, (10, 20)) + 3.0, median)
        assert found is not None
        hits += int(found[0] <= 3.0 <= found[1])
    assert 45 <= hits <= 60


def test_the_interval_of_a_ratio_resamples_both_sides() -> None:
    twice = ratio_interval(2.0 * SCORES, SCORES)
    assert twice is not None
    assert twice[0] < 2.0 < twice[1]
    steady = np.full((3, 4), 6.0)
    assert ratio_interval(steady, steady / 3.0) == pytest.approx((3.0, 3.0))
    assert ratio_interval(SCORES, SCORES[:1]) is None


def test_one_seed_has_no_interval_and_one_workload_has() -> None:
    assert interval(SCORES[:1], geomean) is None
    assert improvement_interval(SCORES[:1], SCORES) is None
    assert interval(SCORES[:, :1], geomean) is not None
    for statistic in (geomean, median, iqm):
        assert float(statistic([[3.0]])) == pytest.approx(3.0)
    assert improvement_interval(SCORES, SCORES + 100.0) == (0.0, 0.0)


def test_scores_clip_what_is_slower_and_keep_failures_below() -> None:
    speedups = [[0.3, 2.0, np.nan, np.inf, 0.0, -1.0]]
    assert ranked(speedups).tolist() == [[1.0, 2.0, UNVERIFIED, UNVERIFIED, UNVERIFIED, UNVERIFIED]]
    assert unclipped(speedups)[0, 0] == 0.3
    assert ranked(np.nan) == UNVERIFIED


def test_nan_counts_as_a_failure_and_is_never_left_out() -> None:
    holed = np.array([[np.nan, 8.0]])
    assert geomean(holed) == pytest.approx(2.0)
    assert profile(holed, [1.0]).tolist() == [0.5]
    assert improvement(holed, [[0.5, 8.0]]) == 0.5


def test_all_failures() -> None:
    nothing = ranked(np.full((3, 4), np.nan))
    for statistic in (geomean, median, iqm):
        assert statistic(nothing) == pytest.approx(UNVERIFIED)
        assert interval(nothing, statistic) == pytest.approx((0.5, 0.5))
    assert fast_p(np.full((3, 4), np.nan), 0.0) == 0.0
    assert improvement(nothing, nothing) == 0.5


def test_shapes_that_are_no_scores_are_refused() -> None:
    for wrong in (np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)):
        with pytest.raises(InvalidValueError, match="seeds, workloads"):
            geomean(wrong)
    with pytest.raises(InvalidValueError, match="number of workloads"):
        improvement(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(InvalidValueError, match="at least one run"):
        fast_p([], 1.0)
