"""Every status that a run on this machine can end with, each from its real cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from handmade import ROWS, WIDTH, edited, extern, host, program_of, right, start, written_as
from tvm import te, tirx

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.local_evaluator import Limits, LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import Call, TimingPlan

LIMITS = Limits(build_s=60.0, gate_s=30.0)
QUICK = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)
PLANS = {Level.TRAINING: QUICK, Level.FULL: QUICK}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    """Without static checks, which would refuse most of what is tried here before it runs."""
    with LocalEvaluator(
        host(), store=":memory:", limits=LIMITS, static_checks=False, plans=PLANS
    ) as made:
        yield made


def impatient(**limits: float) -> LocalEvaluator:
    changed = replace(LIMITS, **limits)  # type: ignore[arg-type]
    return LocalEvaluator(
        host(), store=":memory:", limits=changed, static_checks=False, plans=PLANS
    )


def ends(evaluator: LocalEvaluator, program: TensorIRProgram, status: Status) -> Evaluation:
    """The verdict is `status`, and the next program is judged as if nothing had happened."""
    found = evaluator.evaluate(program)
    assert found.status is status, found.message
    assert found.measurement is None or status is Status.PASSED
    assert evaluator.check(start(), Level.TRAINING).status is Status.PASSED
    return found


def bomb() -> TensorIRProgram:
    """A 128x128 matmul, unrolled completely: two million statements."""
    a, b = (te.placeholder((128, 128), name=n) for n in "AB")
    r = te.reduce_axis((0, 128), "r")
    c = te.compute((128, 128), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": func}))
    for loop in schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0]):
        schedule.unroll(loop)
    return program_of(schedule.mod)


def test_the_unscheduled_program_passes_at_exactly_one(evaluator: LocalEvaluator) -> None:
    for level in Level:
        found = evaluator.evaluate(start(), level)
        assert found.passed
        assert found.measurement is not None
        assert (found.speedup, found.measurement.speedup_ci) == (1.0, (1.0, 1.0))
        assert found.level is level
        assert found.gate is not None
        assert found.gate.bit_identical
        assert found.phases.total_s >= found.phases.build_s > 0.0


def test_illegal_by_the_size_of_the_code(evaluator: LocalEvaluator) -> None:
    found = ends(evaluator, bomb(), Status.ILLEGAL)
    assert "statements" in found.message


def test_illegal_by_a_static_check() -> None:
    program = written_as(lambda a, i, j: extern("float32", "sinf", a[i, j]))
    with LocalEvaluator(host(), store=":memory:") as checking:
        found = checking.evaluate(program)
        assert [r.status for r in checking.store.records()] == [Status.ILLEGAL]
    assert found.status is Status.ILLEGAL
    assert found.code_key == ""
    assert "sinf" in found.message


def test_compile_error(evaluator: LocalEvaluator) -> None:
    def bind(schedule: Any, block: Any) -> None:
        schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")

    found = ends(evaluator, edited(bind), Status.COMPILE_ERROR)
    assert found.message.startswith("build:")
    assert "\n" not in found.message


def test_crash_of_the_compiler(evaluator: LocalEvaluator) -> None:
    """The number of an LLVM intrinsic that does not exist."""
    program = written_as(
        lambda a, i, j: tirx.call_llvm_pure_intrin("float32", 2_000_000_000, a[i, j])
    )
    found = ends(evaluator, program, Status.CRASH)
    assert "SIGSEGV" in found.message
    assert found.message.startswith("build:")


@pytest.mark.parametrize(
    ("function", "signal"), [("no_such_function_anywhere", "SIGSEGV"), ("abort", "SIGABRT")]
)
def test_crash_of_the_kernel(evaluator: LocalEvaluator, function: str, signal: str) -> None:
    program = written_as(lambda a, i, j: right(a, i, j) + extern("float32", function))
    found = ends(evaluator, program, Status.CRASH)
    assert signal in found.message
    assert found.code_key


def test_timeout_of_the_kernel() -> None:
    program = written_as(lambda a, i, j: right(a, i, j) + extern("float32", "pause"))
    with impatient(gate_s=1.0) as evaluator:
        found = ends(evaluator, program, Status.TIMEOUT)
    assert found.message.startswith("gate")


def test_timeout_of_the_compiler() -> None:
    def unroll(schedule: Any, block: Any) -> None:
        for loop in schedule.get_loops(block):
            schedule.unroll(loop)

    with impatient() as evaluator:
        evaluator.check(start(), Level.TRAINING)
    with impatient(build_s=0.02) as evaluator:
        found = evaluator.evaluate(edited(unroll))
    assert found.status is Status.TIMEOUT
    assert found.message.startswith("build")


def test_out_of_memory(evaluator: LocalEvaluator) -> None:
    size = 1 << 36
    a = te.placeholder((ROWS, WIDTH), name="A")
    huge = te.compute((size,), lambda k: a[k % ROWS, k % WIDTH], name="huge")
    b = te.compute(
        (ROWS, WIDTH), lambda i, j: huge[i * tirx.const(size // ROWS, "int64") + j], name="B"
    )
    func = te.create_prim_func([a, b]).with_attr("global_symbol", "main")
    ends(evaluator, program_of(tvm.IRModule({"main": func})), Status.OUT_OF_MEMORY)


WRONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "another constant": lambda a, i, j: a[i, j] * tirx.const(2.0, "float32"),
    "one element in two thousand": lambda a, i, j: (
        right(a, i, j)
        + tirx.if_then_else(tirx.all(i == 17, j == 23), tirx.const(0.125, "float32"), 0.0)
    ),
    "transposed": lambda a, i, j: right(a, (i * WIDTH + j) % ROWS, (i * WIDTH + j) // ROWS),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_result(evaluator: LocalEvaluator, name: str) -> None:
    found = ends(evaluator, written_as(WRONG[name]), Status.WRONG_RESULT)
    assert found.gate is not None
    assert "B[" in found.gate.failure
    assert " instead of " in found.message


def test_wrong_result_by_an_output_that_is_not_written(evaluator: LocalEvaluator) -> None:
    a = te.placeholder((ROWS, WIDTH), name="A")
    b = te.compute((ROWS, WIDTH), lambda i, j: right(a, i, j), name="B")
    func = te.create_prim_func([a, b]).with_attr("global_symbol", "main")
    short = tvm.script.from_source(
        tvm.IRModule({"main": func}).script().replace(f"T.grid({ROWS}, ", f"T.grid({ROWS - 1}, ")
    )
    ends(evaluator, program_of(short), Status.WRONG_RESULT)


@pytest.mark.parametrize(("row", "where"), [(ROWS, "after its end"), (-1, "before its start")])
def test_wrong_result_by_a_write_out_of_bounds(
    evaluator: LocalEvaluator, row: int, where: str
) -> None:
    text = start().mod.script()
    line = next(t for t in text.splitlines() if "B[v_i, v_j] =" in t or "B[v_i0" in t)
    indent = line[: len(line) - len(line.lstrip())]
    program = program_of(
        tvm.script.from_source(text.replace(line, f"{line}\n{indent}B[{row}, 0] = T.float32(7)"))
    )
    found = ends(evaluator, program, Status.WRONG_RESULT)
    assert where in found.message


def test_flaky(evaluator: LocalEvaluator) -> None:
    """A coin decides the last bit: always within the tolerance, never twice the same."""

    def value(a: Any, i: Any, j: Any) -> Any:
        coin = tirx.Cast("float32", tirx.bitwise_and(extern("int32", "rand"), 1))
        return right(a, i, j) * (tirx.const(1.0, "float32") + coin * tirx.const(2e-7, "float32"))

    found = ends(evaluator, written_as(value), Status.FLAKY)
    assert "differ" in found.message


def test_too_slow(evaluator: LocalEvaluator) -> None:
    def value(a: Any, i: Any, j: Any) -> Any:
        return right(a, i, j) + tirx.Cast("float32", extern("int32", "usleep", 30))

    found = ends(evaluator, written_as(value), Status.TOO_SLOW)
    assert found.slowdown_limit is not None
    assert found.slowdown_limit > LIMITS.slowdown


class Erratic:
    """A timer whose samples spread over four decades."""

    name = "erratic"

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def time(self, call: Call, calls: int) -> float:
        call.function(*call.arguments)
        return float(1e-5 * 10.0 ** self.rng.uniform(0.0, 4.0))


def split_rows() -> TensorIRProgram:
    """A right program with other code than the unscheduled one."""

    def split(schedule: Any, block: Any) -> None:
        i, j = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, 8])
        schedule.reorder(outer, j, inner)

    return edited(split)


def test_noisy() -> None:
    with LocalEvaluator(host(), store=":memory:", limits=LIMITS, timer=Erratic()) as evaluator:
        found = ends(evaluator, split_rows(), Status.NOISY)
        assert found.gate is not None
        assert evaluator.evaluate(split_rows()).status is Status.NOISY


def test_suspect() -> None:
    with LocalEvaluator(
        host(), store=":memory:", limits=LIMITS, plans=PLANS, floor_us=lambda *_: 1e9
    ) as evaluator:
        found = ends(evaluator, split_rows(), Status.SUSPECT)
    assert "floor" in found.message


def test_a_rejection_is_settled_by_second_witnesses(evaluator: LocalEvaluator) -> None:
    assert evaluator.second_witness(split_rows()).candidate == ""
    report = evaluator.second_witness(written_as(WRONG["another constant"]))
    assert report.candidate.startswith("wrong_result")
    assert len(report.witnesses) == 2
    assert report.wrong_schedule
    assert not report.miscompile
