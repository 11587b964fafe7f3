"""The correlation benchmark: its statistic against the definition, and one small real run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from tirgym.benchmarks.static_cost_correlation import measure, spearman


def test_spearman_follows_its_definition() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # without ties: 1 - 6 Σd² / (n (n² - 1))
    first, second = [3, 1, 4, 2, 5], [1, 2, 5, 3, 4]
    squares = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    assert spearman(first, second) == pytest.approx(1 - 6 * squares / (5 * 24))


def test_equal_values_share_their_rank() -> None:
    # ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(math.sqrt(0.9))


def test_no_spread_has_no_correlation() -> None:
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2], [1, 2]) is None


@pytest.mark.slow
def test_a_small_run_correlates() -> None:
    report = measure(("matmul", "transpose"), schedules=12)
    assert {row.kernel for row in report.kernels} == {"matmul", "transpose"}
    assert report.mean is not None
    assert report.mean > 0
    assert json.loads(json.dumps(asdict(report)))["target"].startswith("llvm/")
