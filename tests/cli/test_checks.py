"""`tirgym gate selftest` and `tirgym suite lint`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tirgym.benchmarks import suite_lint
from tirgym.harness.evaluation import GateReport
from tirgym.harness.local_evaluator import GateCheck, LocalEvaluator
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Kernel

Cli = Callable[..., Any]


def test_every_mutant_of_a_kernel_is_rejected(cli: Cli) -> None:
    record = cli("gate", "selftest", "add", "--json").json()
    assert (record["ok"], record["kill_rate"], record["kernels"]) == (True, 1.0, 1)
    assert record["mutants"] >= 5


def test_right_schedules_are_not_rejected(cli: Cli) -> None:
    record = cli("gate", "selftest", "relu", "--schedules", "3", "--json").json()
    assert record["schedules"]["judged"] == 3
    assert record["schedules"]["false_rejections"] == 0


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


def test_lint_of_a_kernel(cli: Cli) -> None:
    record = cli("suite", "lint", "add", "--quick", "--json").json()
    assert (record["ok"], record["kernels"]) == (True, ["add"])


def test_a_broken_promise_fails_the_lint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel: Kernel) -> Iterator[suite_lint.Finding]:
        yield suite_lint.Finding(kernel.name, "promise", "is not kept")

    monkeypatch.setattr(suite_lint, "KERNEL_RULES", (broken,))
    done = cli("suite", "lint", "add", "--quick")
    assert done.code == 1
    assert "add: promise: is not kept" in done.out
    assert cli("suite", "lint", "--suite", "core-v9").code == 2
