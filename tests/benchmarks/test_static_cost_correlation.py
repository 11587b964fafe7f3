"""The correlation benchmark: its statistic against the definition, and one small real run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest
from learned import KERNELS, measured, start

from tirgym.benchmarks.static_cost_correlation import _kernel_report, measure, spearman
from tirgym.harness.evaluation import Evaluation, GateReport
from tirgym.harness.status import Status


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


def test_the_clock_has_no_say_in_which_five_are_predicted_to_be_fastest() -> None:
    alike = [start(KERNELS["elementwise"])] * 7
    gate = GateReport(("normal",), 0.1, True)
    verdicts = [
        Evaluation(Status.PASSED, "ir", f"code-{n}", measured(float(n)), gate) for n in range(1, 8)
    ]
    found = _kernel_report("add", alike, verdicts)
    assert found.best_speedup == pytest.approx(7.0)
    assert found.best_of_five == pytest.approx(5.0)


@pytest.mark.slow
def test_a_small_run_correlates() -> None:
    report = measure(("matmul", "transpose"), schedules=12)
    assert {row.kernel for row in report.kernels} == {"matmul", "transpose"}
    assert report.mean is not None
    assert report.mean > 0
    assert json.loads(json.dumps(asdict(report)))["target"].startswith("llvm/")
