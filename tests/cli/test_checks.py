"""`tirgym gate selftest` and `tirgym suite lint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tirgym.harness.evaluation import GateReport
from tirgym.harness.local_evaluator import GateCheck, LocalEvaluator
from tirgym.harness.status import Status

Cli = Callable[..., Any]


def test_every_mutant_of_a_kernel_is_rejected(cli: Cli) -> None:
    record = cli("gate", "selftest", "add", "--json").json()
    assert (record["ok"], record["kill_rate"], record["kernels"]) == (True, 1.0, 1)
    assert record["mutants"] >= 5


def test_a_gate_that_passes_everything_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    report = GateReport(("normal",), 0.0, True)
    blind = GateCheck(Status.PASSED, "code", report, "")
    monkeypatch.setattr(LocalEvaluator, "check", lambda self, program, level: blind)
    done = cli("gate", "selftest", "add")
    assert done.code == 1
    assert "survived: add: store_deleted" in done.out
    assert "(0.0%)" in done.out


def test_an_unknown_kernel_is_bad_usage(cli: Cli) -> None:
    done = cli("gate", "selftest", "softmx")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'softmax'" in done.err
