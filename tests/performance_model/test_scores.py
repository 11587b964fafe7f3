"""Scores against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tirgym.performance_model.scores import Prediction, Score, mean_score, score, spearman

NONE_CUT = np.zeros(8, dtype=np.bool_)
MEASURED = np.log(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))


def band(expected: list[float], half: float) -> Prediction:
    middle = np.array(expected)
    return Prediction(middle, middle - half, middle + half)


def test_a_perfect_prediction_has_perfect_scores() -> None:
    found = score(MEASURED, NONE_CUT, MEASURED, band(MEASURED.tolist(), 0.1))
    assert found.width == pytest.approx(0.2)
    assert found.spearman == pytest.approx(1.0)
    assert (found.programs, found.recall, found.best) == (8, 1.0, 1.0)
    assert (found.error, found.coverage) == (0.0, 1.0)


def test_recall_counts_the_fastest_five_and_best_compares_with_the_fastest() -> None:
    backwards = MEASURED[::-1].copy()
    found = score(MEASURED, NONE_CUT, backwards, None)
    assert found.recall == pytest.approx(2 / 5)  # 4x and 5x are in both
    assert found.best == pytest.approx(5 / 8)
    assert found.spearman == pytest.approx(-1.0)
    assert found.coverage is None


def test_error_is_the_root_mean_square() -> None:
    found = score(MEASURED, NONE_CUT, MEASURED + 0.5, None)
    assert found.error == pytest.approx(0.5)


def test_coverage_is_the_share_of_truths_inside() -> None:
    expected = MEASURED + np.array([0, 0, 0, 0, 0, 0, 0.2, -0.2])
    assert score(MEASURED, NONE_CUT, expected, band(expected.tolist(), 0.1)).coverage == 0.75


def test_a_truth_that_was_cut_off_may_lie_lower_but_not_higher() -> None:
    cut = NONE_CUT.copy()
    cut[6:] = True  # the truth is at or below its number
    expected = MEASURED + np.array([0, 0, 0, 0, 0, 0, -0.5, 0.5])
    assert score(MEASURED, cut, expected, band(expected.tolist(), 0.1)).coverage == 7 / 8


def test_fewer_programs_than_the_top_are_all_the_top() -> None:
    found = score(MEASURED[:2], NONE_CUT[:2], MEASURED[:2], None)
    assert (found.recall, found.spearman) == (1.0, None)


def test_means_leave_out_what_is_not_known() -> None:
    one = Score(10, 0.5, 0.25, 0.75, 1.0, None, None)
    two = Score(20, None, 0.75, 0.25, 3.0, 0.8, 2.0)
    assert mean_score([one, two]) == Score(30, 0.5, 0.5, 0.5, 2.0, 0.8, 2.0)
    with pytest.raises(ValueError, match="no kernels"):
        mean_score([])


def test_ranks_share_ties() -> None:
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(math.sqrt(0.9))
    assert spearman([1, 1, 1], [1, 2, 3]) is None
