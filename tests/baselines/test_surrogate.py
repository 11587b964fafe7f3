"""The surrogate against the textbook: prior, interpolation, doubt, and batches without twins."""

from __future__ import annotations

import numpy as np
import pytest

from tirgym.baselines.surrogate import PRIOR, pick, posterior, posterior_mean

GRID = np.linspace(0.0, 1.0, 21)[:, None]
NOTHING = np.zeros((0, 1))


def test_without_measurements_the_static_cost_stands_in_full_doubt() -> None:
    mean, covariance = posterior(GRID, NOTHING, np.zeros(0))
    assert not mean.any()
    assert np.diag(covariance) == pytest.approx(PRIOR**2)


def test_it_answers_what_was_measured_and_doubts_what_is_far() -> None:
    known = np.array([[0.0], [0.5]])
    mean, covariance = posterior(GRID, known, np.array([1.0, -1.0]))
    doubt = np.sqrt(np.diag(covariance))
    assert mean[0] == pytest.approx(1.0, abs=0.05)
    assert mean[10] == pytest.approx(-1.0, abs=0.05)
    assert doubt[0] < 0.1 < doubt[20]
    assert -1.0 < mean[5] < 1.0


def test_a_kernel_that_the_model_misjudges_everywhere_is_shifted_as_a_whole() -> None:
    known = GRID[::4]
    mean, _ = posterior(GRID, known, np.full(len(known), 0.7))
    assert mean == pytest.approx(0.7, abs=0.02)


def test_a_batch_has_no_near_twins() -> None:
    twins = np.concatenate([np.zeros((5, 1)), np.ones((1, 1))])
    mean, covariance = posterior(twins, NOTHING, np.zeros(0))
    predicted = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.1])
    assert set(pick(predicted + mean, covariance, 2, courage=1.0)) == {0, 5}
    assert pick(predicted + mean, covariance, 2, courage=0.0) == [0, 1]


def test_no_more_is_picked_than_there_is() -> None:
    mean, covariance = posterior(GRID[:2], NOTHING, np.zeros(0))
    assert sorted(pick(mean, covariance, 5, 1.0)) == [0, 1]


def test_identical_rows_do_not_break_it() -> None:
    same = np.zeros((3, 2))
    mean, covariance = posterior(same, np.zeros((2, 2)), np.array([0.3, 0.3]))
    assert mean == pytest.approx(0.3)
    assert np.isfinite(covariance).all()


def test_the_mean_alone_is_the_mean() -> None:
    rng = np.random.default_rng(0)
    rows, known, residuals = rng.random((30, 4)), rng.random((7, 4)), rng.normal(size=7)
    mean, _ = posterior(rows, known, residuals)
    assert posterior_mean(rows, known, residuals) == pytest.approx(mean)
