"""The study of false rejections draws what it says, goes on where it stopped, and can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small import TARGET

from tirgym.benchmarks import false_rejections
from tirgym.benchmarks.false_rejections import (
    KernelRow,
    Options,
    draw,
    main,
    starts_of,
    study_kernel,
    summary,
)
from tirgym.errors import DamagedFileError, TargetMismatchError
from tirgym.harness.evaluation import GateReport, Level, WitnessReport
from tirgym.harness.local_evaluator import GateCheck
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import list_kernels, load_kernel

QUICK = Options(schedules=3, least_depth=8, most_depth=10, train_every=0)
RIGHT = GateCheck(Status.PASSED, "code", GateReport(("normal",), 0.25, True))


class Judging:
    """Answers each check by a function; every witness finds the IR right."""

    def __init__(self, answer: Callable[[TensorIRProgram], GateCheck]) -> None:
        self.answer = answer

    def check(self, program: TensorIRProgram, level: Level = Level.FULL) -> GateCheck:
        return self.answer(program)

    def second_witness(self, program: TensorIRProgram, level: Level = Level.FULL) -> WitnessReport:
        return WitnessReport("wrong", (("serial loops", ""),))


def studied(answer: Callable[[TensorIRProgram], GateCheck]) -> KernelRow:
    kernel = load_kernel("softmax")
    return study_kernel(Judging(answer), kernel, QUICK, TARGET)  # type: ignore[arg-type]


def totals(row: KernelRow) -> dict[str, Any]:
    from dataclasses import asdict

    return summary([asdict(row)])


def test_schedules_are_deep_and_a_function_of_the_options() -> None:
    kernel, vocabulary = load_kernel("layernorm"), default_vocabulary()
    workload = starts_of(kernel, 0)[0]
    drawn = [draw(workload, n, QUICK, vocabulary, TARGET) for n in range(3)]
    again = [draw(workload, n, QUICK, vocabulary, TARGET) for n in range(3)]
    assert [p.steps for p in drawn] == [p.steps for p in again]
    assert len({p.ir_key for p in drawn}) == 3
    assert all(len(p.steps) >= 8 for p in drawn)


def test_tiny_rounded_and_train_shapes_take_turns() -> None:
    kernel = load_kernel("matmul")
    assert [w.shape == kernel.default_shape for w in starts_of(kernel, 5)] == [False] * 4 + [True]
    assert len({w.dims for w in starts_of(kernel, 5)}) == 3


def test_passes_are_counted() -> None:
    row = studied(lambda program: RIGHT)
    assert (row.judged, row.statuses, row.causes, row.worst_error) == (3, {"passed": 3}, {}, 0.25)
    assert row.depth_sum >= 24
    assert totals(row)["ok"]


def test_a_rejection_near_the_limit_of_a_right_program_is_false() -> None:
    near = GateCheck(Status.WRONG_RESULT, "code", GateReport(("normal",), 1.5, False, "x"), "x")
    row = studied(lambda program: near)
    assert row.causes == {"false rejection": 3}
    assert totals(row)["false_rejections"] == 3
    assert not totals(row)["ok"]


def test_a_gross_error_of_a_right_program_is_the_compilers() -> None:
    gross = GateCheck(Status.WRONG_RESULT, "code", GateReport(("normal",), 1e7, False, "x"), "x")
    row = studied(lambda program: gross)
    assert row.causes == {"miscompile": 3}
    assert totals(row)["ok"]


def test_a_static_check_that_refuses_a_right_program_is_false(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tirgym.harness.evaluation_run.static_finding", lambda program: "no")
    row = studied(lambda program: RIGHT)
    assert len(row.static_rejections) == 3
    assert not totals(row)["ok"]


def test_what_is_not_judged_is_drawn_again_and_shown() -> None:
    failing = GateCheck(Status.COMPILE_ERROR, "", None, "build: no")
    row = studied(lambda program: failing)
    assert (row.judged, row.statuses) == (0, {"compile_error": 12})
    assert row.not_built[0]["message"] == "build: no"


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def instead(evaluator: Any, kernel: Any, options: Options, target: Any) -> KernelRow:
        asked.append(kernel.name)
        return KernelRow(kernel.name, 2, 16, 1, 0, {"passed": 2})

    monkeypatch.setattr(false_rejections, "study_kernel", instead)
    out = str(tmp_path / "rows.json")
    assert main(["add", "--out", out]) == 0
    assert main(["add", "relu", "--out", out]) == 0
    assert asked == ["add", "relu"]
    rows = json.loads(Path(out).read_text())["rows"]
    assert [row["kernel"] for row in rows] == ["add", "relu"]
    with pytest.raises(TargetMismatchError, match="same options"):
        main(["add", "--seed", "1", "--out", out])
    Path(out).write_text("{")
    with pytest.raises(DamagedFileError, match="table of rejections"):
        main(["add", "--out", out])


def test_a_real_kernel_has_none(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert main(["softmax", "--schedules", "3", "--train-every", "0", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["judged"] == 3
    assert row["several_blocks"] == 3


@pytest.mark.slow
def test_no_kernel_has_any(tmp_path: Path) -> None:
    assert main(["--schedules", "20", "--out", str(tmp_path / "rows.json")]) == 0


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "false_rejections.json"


def test_the_committed_table_is_of_the_whole_suite() -> None:
    table = json.loads(RESULTS.read_text())
    assert [row["kernel"] for row in table["rows"]] == [k.name for k in list_kernels("core-v0")]
    assert table["summary"] == summary(table["rows"])
    assert table["summary"]["ok"]
    assert table["summary"]["fewest_judged_of_a_kernel"] >= 20
    assert all(row["depth_sum"] >= 8 * row["judged"] for row in table["rows"])
