"""`CompileHarness`: load, transform, measure, go back, search; and the log of it all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from toy import ToyCost, ToyEvaluator, ToyProgram, Turn, toy_vocabulary, toy_workload

from tirgym.errors import (
    IllegalTransformError,
    InvalidValueError,
    UnknownNameError,
    UsageError,
)
from tirgym.harness.agent import Search
from tirgym.harness.backend import BACKENDS
from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status


@pytest.fixture(autouse=True)
def toy_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the toy in the backend table."""
    monkeypatch.setitem(BACKENDS, "toy", "toy:ToyBackend")


def make_harness(evaluator: ToyEvaluator | None = None, load: bool = True) -> CompileHarness:
    harness = CompileHarness(
        "toy",
        evaluator=evaluator or ToyEvaluator(),
        vocabulary=toy_vocabulary(),
        cost=ToyCost(),
    )
    if load:
        harness.load_ir(toy_workload())
    return harness


def dials(harness: CompileHarness) -> tuple[int, ...]:
    assert isinstance(harness.program, ToyProgram)
    return harness.program.dials


def test_nothing_works_before_a_kernel_is_loaded() -> None:
    with pytest.raises(UsageError, match="load_ir"):
        make_harness(load=False).get_ir_level("dials")


def test_transforms_move_the_program_and_illegal_ones_do_not() -> None:
    harness = make_harness()
    harness.apply_transform(Turn(0, 4))
    harness.apply_transform(Turn(0, 4))
    with pytest.raises(IllegalTransformError):
        harness.apply_transform(Turn(0, 1))
    assert dials(harness) == (8, 0, 0)
    assert [(e.action, e.verdict) for e in harness.history] == [
        ("load", "ok"),
        ("transform", "ok"),
        ("transform", "ok"),
        ("transform", "illegal"),
    ]
    assert harness.history[1].change["steps"] == (0.0, 1.0)
    before, after = harness.history[1].change["predicted_us"]
    assert before > after
    assert Turn(0, 1) not in harness.legal_transforms()
    assert Turn(1, 1) in harness.legal_transforms()


def test_unknown_levels_are_refused_with_the_known_ones() -> None:
    harness = make_harness()
    assert harness.get_ir_level("dials") == "dials (0, 0, 0)"
    with pytest.raises(UnknownNameError, match="dials"):
        harness.get_ir_level("asm")


def test_snapshots_bring_back_the_very_program() -> None:
    harness = make_harness()
    first = harness.snapshot()
    harness.apply_transform(Turn(1, 2))
    program, second = harness.program, harness.snapshot()
    harness.rollback(first)
    assert dials(harness) == (0, 0, 0)
    assert harness.rollback(second) is program
    assert harness.rollback() is harness.start
    with pytest.raises(UnknownNameError, match=first):
        harness.rollback("s9")


def test_snapshots_of_another_kernel_are_gone() -> None:
    harness = make_harness()
    harness.snapshot()
    harness.load_ir(toy_workload())
    with pytest.raises(UnknownNameError, match="none was taken"):
        harness.rollback("s0")


@pytest.mark.parametrize(
    "status", [Status.WRONG_RESULT, Status.CRASH, Status.COMPILE_ERROR, Status.TIMEOUT]
)
def test_a_failed_evaluation_rolls_back_to_the_newest_program_that_passed(status: Status) -> None:
    harness = make_harness(
        ToyEvaluator(lambda program, level: status if program.dials[1] else Status.PASSED)
    )
    harness.apply_transform(Turn(0, 4))
    assert harness.compile_and_benchmark().passed
    harness.apply_transform(Turn(0, 1))
    harness.apply_transform(Turn(1, 1))
    assert harness.compile_and_benchmark().status is status
    assert dials(harness) == (4, 0, 0)
    assert [e.action for e in harness.history[-2:]] == ["evaluate", "rollback"]


@pytest.mark.parametrize("status", [Status.TOO_SLOW, Status.NOISY, Status.SUSPECT])
def test_a_right_program_without_a_number_stays(status: Status) -> None:
    harness = make_harness(ToyEvaluator(lambda program, level: status))
    harness.apply_transform(Turn(0, 4))
    harness.compile_and_benchmark()
    assert dials(harness) == (4, 0, 0)


def test_ctrl_c_in_an_evaluation_keeps_program_and_history() -> None:
    def interrupt(calls: int) -> None:
        raise KeyboardInterrupt

    harness = make_harness(ToyEvaluator(on_call=interrupt))
    harness.apply_transform(Turn(0, 4))
    with pytest.raises(KeyboardInterrupt):
        harness.compile_and_benchmark()
    assert dials(harness) == (4, 0, 0)
    assert [e.verdict for e in harness.history] == ["ok", "ok", "interrupted"]


class Climber:
    """Turns the first dial up to 5, measuring each step."""

    name = "climber"

    def run(self, search: Search) -> None:
        program = search.start
        for _ in range(5):
            program = program.apply(Turn(0, 1))
            if search.evaluate(program) is None:
                return


def test_search_loop_makes_the_verified_winner_current_and_logs_every_verdict() -> None:
    harness = make_harness()
    verdict = harness.search_loop(Climber(), trials=10)
    assert dials(harness) == (5, 0, 0)
    assert verdict.candidate.evaluation.passed
    assert harness.trace().transforms == ("Turn(dial=0, by=1)",) * 5
    assert [e.action for e in harness.history] == ["load", *["evaluate"] * 6, "search"]
    assert harness.history[-1].speedup == verdict.candidate.evaluation.speedup
    assert "5 trials" in harness.history[-1].message


class Wanderer:
    """Measures programs that are worse than the first."""

    name = "wanderer"

    def run(self, search: Search) -> None:
        steps = [(Turn(1, 4), Turn(1, 4)), (Turn(1, 4), Turn(1, 4), Turn(0, 1))]
        steps += [(Turn(1, 4), Turn(1, 2), Turn(1, 1)), (Turn(1, 4), Turn(1, 2), Turn(1, 2))]
        for transforms in steps:
            program = search.start
            for transform in transforms:
                program = program.apply(transform)
            search.evaluate(program)


def test_a_search_that_stands_still_ends_when_patience_does() -> None:
    harness = make_harness()
    harness.search_loop(Wanderer(), trials=10, patience=2)
    assert harness.history[-1].message == "2 trials, stopped: converged"
    assert dials(harness) == (0, 0, 0)


def test_search_loop_starts_from_the_current_program() -> None:
    harness = make_harness()
    harness.apply_transform(Turn(1, 2))
    harness.search_loop(Climber(), trials=2)
    assert dials(harness) == (2, 2, 0)


def test_the_history_is_json_lines(tmp_path: Path) -> None:
    harness = make_harness()
    harness.apply_transform(Turn(0, 4))
    harness.compile_and_benchmark()
    harness.snapshot()
    harness.save_history(tmp_path / "log.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3]
    assert [line["action"] for line in lines] == ["load", "transform", "evaluate", "snapshot"]
    assert lines[1]["subject"] == "Turn(dial=0, by=4)"
    assert lines[2]["speedup"] > 1
    assert set(lines[2]["phases_s"]) >= {"build_s", "gate_s", "timing_s"}


def test_an_evaluator_of_the_caller_is_not_closed() -> None:
    evaluator = ToyEvaluator()
    with make_harness(evaluator):
        pass
    assert not evaluator.closed


def test_a_kernel_without_a_reference_is_refused_with_an_example() -> None:
    from tvm import te

    a = te.placeholder((4,), "float32", "a")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, "out")])
    harness = CompileHarness("llvm", evaluator=ToyEvaluator())
    with pytest.raises(UsageError, match="reference"):
        harness.load_ir(func)


def test_ir_with_a_reference_is_loaded_and_transformed_by_text() -> None:
    import tvm
    from tvm import te

    a = te.placeholder((64,), "float32", "a")
    func = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, "out")])
    with CompileHarness("llvm", evaluator=ToyEvaluator(), cost=Constant()) as harness:
        for ir in (func, tvm.IRModule({"main": func})):
            program = harness.load_ir(ir, reference=lambda a: a.astype(np.float64) + 1)
            assert "range(64)" in program.text()
        harness.apply_transform("Split(loop=0, factor=8)")
        assert "range(8, 8)" in harness.get_ir_level(
            "tir"
        ) or "T.grid(8, 8)" in harness.get_ir_level("tir")
        with pytest.raises(InvalidValueError, match="Split"):
            harness.apply_transform("Split(loop=0)")
        two = tvm.IRModule({"main": func, "other": func})
        with pytest.raises(InvalidValueError, match="exactly one function"):
            harness.load_ir(two, reference=lambda a: a + 1)


class Constant:
    """A cost model that knows nothing."""

    def predict_us(self, program: object) -> float:
        return 1.0
