"""`tirgym baseline`: every row is measured now and carries what the number means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes import verdict

from tirgym.harness import baselines_report
from tirgym.harness.status import Status
from tirgym.kernels_suite.registry import load_kernel

Cli = Callable[..., Any]


def test_matmul_has_naive_default_and_vendor(cli: Cli) -> None:
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
    naive, vendor = rows[0], rows[2]
    assert (naive["speedup"], naive["status"]) == (1.0, "passed")
    assert vendor["what"].startswith("numpy ")


def test_a_baseline_that_fails_is_said_and_not_hidden(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        baselines_report, "evaluate_in_full", lambda *_, **__: verdict(Status.WRONG_RESULT)
    )
    monkeypatch.setattr(baselines_report, "vendor_libraries", lambda kernel, backend: ())
    done = cli("baseline", "softmax", "-s", "tiny")
    assert done.code == 1
    assert "wrong_result: scripted wrong_result" in done.out
    assert "torch has one, but is not installed" in done.out


def test_a_kernel_that_no_library_has_says_so() -> None:
    assert "no library" in baselines_report.missing_vendor(load_kernel("blur"), "llvm")
