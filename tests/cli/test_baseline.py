"""`tirgym baseline`: every row is measured now and carries what the number means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes import timing, verdict
from handmade import quick

from tirgym.harness import baselines_report
from tirgym.harness.backend import backend
from tirgym.harness.calibration import estimated_peaks
from tirgym.harness.status import Status
from tirgym.harness.vendor import VendorResult
from tirgym.kernels_suite.registry import load_kernel, load_workload

Cli = Callable[..., Any]


def test_matmul_has_naive_default_and_vendor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch from the command line: tests/harness/cuda/test_gpu_machine.py."""
    monkeypatch.setattr(baselines_report, "vendor_libraries", lambda kernel, backend: ("numpy",))
    done = cli("baseline", "matmul", "-s", "m=64,n=64,k=64", "--json")
    assert done.code == 0, done.err
    rows = done.json()["baselines"]
    assert [row["name"] for row in rows][:3] == ["naive", "default", "vendor"]
    for row in rows:
        if row["stats"] is None:
            assert row["status"] != "passed"
            continue
        stats, time_us = row["stats"], row["stats"]["lower_quartile_us"]
        assert time_us <= stats["median_us"] <= stats["p95_us"] <= stats["p99_us"]
        assert row["gflops"] == pytest.approx(2 * 64**3 / time_us / 1e3)
        assert row["roofline_fraction"] > 0.0
        assert len(row["sessions"]) >= 3
        assert row["speedup"] in row["sessions"]
        low, high = row["speedup_ci"]
        assert low <= min(row["sessions"]) <= max(row["sessions"]) <= high
    naive, vendor = rows[0], rows[2]
    assert (naive["speedup"], naive["status"]) == (1.0, "passed")
    assert vendor["what"].startswith("numpy ")


def test_a_baseline_that_fails_is_said_and_not_hidden(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        baselines_report, "evaluate_in_sessions", lambda *_, **__: verdict(Status.WRONG_RESULT)
    )
    monkeypatch.setattr(baselines_report, "vendor_libraries", lambda kernel, backend: ())
    done = cli("baseline", "softmax", "-s", "tiny")
    assert done.code == 1
    assert "wrong_result: scripted wrong_result" in done.out
    assert "torch has one, but is not installed" in done.out


@pytest.mark.parametrize(
    ("script", "status", "speedup", "interval"),
    [
        ((3.0, 2.9, 3.1), "passed", 3.0, (2.9, 3.1)),
        ((3.0, Status.NOISY, 2.9, 3.1), "passed", 3.0, (2.9, 3.1)),
        ((3.0, 5.0, 3.1, 3.2, 3.3), "passed", 3.2, (3.0, 5.0)),
        ((Status.NOISY, 3.0, Status.NOISY, Status.NOISY, 3.1), "noisy", None, None),
        ((3.0, 3.0, Status.WRONG_RESULT), "wrong_result", None, None),
    ],
)
def test_a_library_is_measured_in_several_processes(
    script: tuple[float | Status, ...],
    status: str,
    speedup: float | None,
    interval: tuple[float, float] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(script)

    def measure(*_: object) -> VendorResult:
        says = next(answers)
        if isinstance(says, Status):
            return VendorResult("blas 1", says, "scripted")
        return VendorResult("blas 1", Status.PASSED, "", timing(100 / says), says, (says, says))

    monkeypatch.setattr(baselines_report, "measure_vendor", measure)
    monkeypatch.setattr(
        baselines_report, "evaluate_in_sessions", lambda *_, **__: verdict(Status.PASSED)
    )
    monkeypatch.setattr(baselines_report, "vendor_libraries", lambda kernel, backend: ("blas",))
    monkeypatch.setattr(baselines_report, "peaks", estimated_peaks)
    with quick() as evaluator:
        workload = load_workload("add", {"m": 8, "n": 16})
        rows = baselines_report.measure_baselines(workload, backend("llvm").target(), evaluator)
    assert next(answers, None) is None
    row = rows[-1]
    assert (row.status, row.speedup, row.speedup_ci) == (status, speedup, interval)
    measured = tuple(says for says in script if not isinstance(says, Status))
    assert row.sessions == (() if status == "wrong_result" else measured)
    if status == "noisy":
        assert row.message == "2 of 5 processes could be measured, and a number takes 3"


def test_a_kernel_that_no_library_has_says_so() -> None:
    assert "no library" in baselines_report.missing_vendor(load_kernel("blur"), "llvm")
