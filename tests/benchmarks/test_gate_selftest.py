"""The self-test kills every mutant, and can fail: a weakened gate shows survivors."""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tirgym.benchmarks.gate_selftest import QUICK_KERNELS, SelftestReport, selftest
from tirgym.benchmarks.mutant_table import COLUMNS, TABLE, kinds_of
from tirgym.errors import UnknownNameError
from tirgym.harness import gate as gate_module
from tirgym.harness.backend import backend
from tirgym.harness.buffers import GuardedBuffer
from tirgym.harness.evaluation import Level
from tirgym.harness.gate import InputSet
from tirgym.harness.judge import Expected, Verdict, judge
from tirgym.harness.local_evaluator import GateCheck
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import PLANS, WallTimer
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Array, Regime


class LocalGate:
    """The gate in this process, where a test can weaken it; for mutants that damage nothing."""

    def __init__(self, folder: Path, regimes: Sequence[Regime]) -> None:
        lock = str(folder / "lock")
        self.rules = Rules(secrets.token_bytes(8), 0, PLANS, WallTimer(), lock, 1e6, 10.0)
        self.regimes = regimes

    def check(self, program: TensorIRProgram, level: Level) -> GateCheck:
        """The gate's own code on a bench in which the right answers lie in the outputs."""
        tvm = backend("llvm")
        start = TensorIRProgram.start(program.workload, program.target)
        bench = Workbench(program.workload, tvm.module_json(start), program.target, self.rules)
        bench.bench.answers_left = True
        function = bench.build(tvm.module_json(program)).load()
        outcome, _ = bench.gate(function, [bench.draw(r, "test") for r in self.regimes])
        return GateCheck(outcome.status, "", outcome.report, outcome.message)


@pytest.fixture
def gate(tmp_path: Path) -> LocalGate:
    return LocalGate(tmp_path, [Regime.NORMAL, Regime.RAMP])


def survivors(report: SelftestReport) -> set[str]:
    assert [c.status for c in report.controls] == ["passed"]
    return {m.kind for m in report.survivors}


@pytest.fixture(scope="module")
def quick() -> SelftestReport:
    """Three kernels through the real worker."""
    return selftest(quick=True)


def test_every_mutant_is_killed(quick: SelftestReport) -> None:
    assert [(m.kernel, m.kind, m.status) for m in quick.survivors] == []
    assert quick.ok
    assert quick.kill_rate == 1.0


def test_quick_kernels_have_every_kind(quick: SelftestReport) -> None:
    assert {m.kind for m in quick.mutants} == set(COLUMNS)
    assert {c.kernel for c in quick.controls} == set(QUICK_KERNELS)


def test_report_is_json(quick: SelftestReport) -> None:
    data = json.loads(json.dumps(quick.to_json()))
    assert data["killed"] == data["mutants"] == sum(n for _, n in data["by_kind"].values())
    assert all(row["reason"] for row in data["skipped"])


def test_intact_gate_kills_in_this_process(gate: LocalGate) -> None:
    kinds = ("stale_output", "last_element_unwritten", "accumulate_float16", "one_element_wrong")
    assert survivors(selftest(["matmul"], gate=gate, kinds=kinds)) == set()


def test_without_poison_untouched_outputs_survive(
    gate: LocalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuardedBuffer, "poison", lambda self, poison: None)
    kinds = ("stale_output", "row_skipped", "last_element_unwritten", "one_element_wrong")
    found = survivors(selftest(["matmul"], gate=gate, kinds=kinds))
    assert found == {"stale_output", "row_skipped", "last_element_unwritten"}


def test_with_a_loose_tolerance_precision_losses_survive(
    gate: LocalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = Expected.of

    def loose(*arguments: Any) -> Expected:
        return replace(tight(*arguments), limit=5e-2)

    monkeypatch.setattr(Expected, "of", loose)
    monkeypatch.setattr("tirgym.harness.judge.MEAN_LIMIT", 1e-2)
    kinds = ("accumulate_float16", "inputs_float16", "operator_changed")
    found = survivors(selftest(["matmul"], gate=gate, kinds=kinds))
    assert found == {"accumulate_float16", "inputs_float16"}


def test_without_a_look_at_the_inputs_a_changed_one_survives(
    gate: LocalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(self: GuardedBuffer, values: Array) -> bool:
        return False

    monkeypatch.setattr(GuardedBuffer, "changed", unchanged)
    assert survivors(selftest(["add"], gate=gate, kinds=["input_modified"])) == {"input_modified"}


def test_with_a_sample_of_the_elements_one_wrong_one_survives(
    gate: LocalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = judge

    def first_row(got: Array, expected: Expected) -> Any:
        return every(
            got[:1],
            replace(
                expected,
                reference=expected.reference[:1],
                unscheduled=expected.unscheduled[:1],
                scale=None if expected.scale is None else expected.scale[:1],
            ),
        )

    monkeypatch.setattr(gate_module, "judge", first_row)
    found = survivors(selftest(["matmul"], gate=gate, kinds=["one_element_wrong", "row_skipped"]))
    assert found == {"one_element_wrong"}


def test_a_gate_that_fails_the_kernel_itself_is_not_ok(
    gate: LocalGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = selftest(["add"], gate=gate, kinds=["loop_short"])
    monkeypatch.setattr("tirgym.harness.gate.Bench.judge", lambda self, given: _failures(given))
    broken = selftest(["add"], gate=gate, kinds=["loop_short"])
    assert healthy.ok
    assert broken.kill_rate == 1.0
    assert not broken.ok


def _failures(given: InputSet) -> list[Any]:
    return [Verdict("always wrong") for _ in given.expected]


def test_progress_counts_up_to_the_total(gate: LocalGate) -> None:
    seen: list[tuple[int, int, str]] = []
    selftest(["add"], gate=gate, kinds=["loop_short"], progress=lambda *step: seen.append(step))
    assert seen == [(0, 1, "add: loop_short"), (1, 1, "done")]


def test_unknown_kernel_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="'addd'"):
        selftest(["addd"])


def test_report_pickles(quick: SelftestReport) -> None:
    assert pickle.loads(pickle.dumps(quick)) == quick


@pytest.mark.slow
@pytest.mark.parametrize("level", list(Level))
def test_every_mutant_of_every_kernel_is_killed(level: Level) -> None:
    report = selftest(level=level)
    assert [(m.kernel, m.kind, m.status) for m in report.survivors] == []
    assert [c for c in report.controls if c.status != "passed"] == []
    assert len(report.mutants) == sum(len(kinds_of(kernel)) for kernel in TABLE)
