"""Thread-bound programs for tests of GPU-like backends: right ones, and tricks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from tirgym.harness.backend import backend
from tirgym.harness.backends.device_code import compile_device
from tirgym.harness.backends.opencl import OpenCLBackend
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.opencl.devices import why_no_device
from tirgym.harness.opencl.launch import LoadedKernels
from tirgym.harness.opencl.session import session
from tirgym.harness.target import Target
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import TimingPlan
from tirgym.harness.transforms import parse_transform
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Kernel, Regime, Workload
from tirgym.kernels_suite.registry import load_kernel

__all__ = [
    "MIRRORED",
    "ROWS",
    "WIDTH",
    "evaluators",
    "hand_made",
    "matmul",
    "mirrored_rows",
    "needs_opencl",
    "opencl_evaluator",
    "opencl_target",
    "played",
    "shared_matmul",
    "verdict_without_barriers",
    "with_statement",
]

_NONE = "needs pyopencl and an OpenCL device: pip install 'tirgym[opencl]'"
needs_opencl = pytest.mark.skipif(
    find_spec("pyopencl") is None or why_no_device() is not None, reason=_NONE
)
ROWS, WIDTH = 24, 32
_QUICK = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)


def opencl_target() -> Target:
    """The first device of this machine, one thread."""
    return backend("opencl").target()


def opencl_evaluator(**options: Any) -> LocalEvaluator:
    """An evaluator with little timing."""
    plans = dict.fromkeys(Level, _QUICK)
    return LocalEvaluator(opencl_target(), ":memory:", **{"plans": plans, **options})


def played(program: TensorIRProgram, steps: str) -> TensorIRProgram:
    """`program` after transforms given as texts with semicolons between them."""
    for step in filter(None, (s.strip() for s in steps.split(";"))):
        program = program.apply(parse_transform(step))
    return program


def matmul(target: Target, size: int = 64) -> TensorIRProgram:
    """An unscheduled matrix product."""
    kernel = load_kernel("matmul")
    workload = Workload.of(kernel, dict.fromkeys(("m", "n", "k"), size))
    return TensorIRProgram.start(workload, target)


def shared_matmul(target: Target, size: int = 64, tile: int = 16) -> TensorIRProgram:
    """A matrix product in tiles: operands through shared memory, sums in registers, one element of the
    result for each thread."""
    workload = matmul(target, size).workload

    def change(schedule: Schedule, blocks: list[Any]) -> None:
        (product,) = blocks
        i, j, k = schedule.get_loops(product)
        i0, i1 = schedule.split(i, [None, tile])
        j0, j1 = schedule.split(j, [None, tile])
        k0, k1 = schedule.split(k, [None, tile])
        schedule.reorder(i0, j0, i1, j1, k0, k1)
        for loop, axis in (
            (i0, "blockIdx.y"),
            (j0, "blockIdx.x"),
            (i1, "threadIdx.y"),
            (j1, "threadIdx.x"),
        ):
            schedule.bind(loop, axis)
        schedule.reverse_compute_at(schedule.cache_write(product, 0, "local"), j1)
        for operand in (0, 1):
            copy = schedule.cache_read(product, operand, "shared")
            schedule.compute_at(copy, k0)
            rows, columns = schedule.get_loops(copy)[-2:]
            schedule.bind(rows, "threadIdx.y")
            schedule.bind(columns, "threadIdx.x")
        schedule.decompose_reduction(product, k0)

    return hand_made(workload, target, change)


def _build_mirrored(shape: Any) -> Any:
    a = te.placeholder((ROWS, WIDTH), name="A")
    b = te.compute((ROWS, WIDTH), lambda i, j: a[i, j] * tirx.const(2.0, "float32"), name="B")
    c = te.compute(
        (ROWS, WIDTH), lambda i, j: b[i, WIDTH - 1 - j] + tirx.const(1.0, "float32"), name="C"
    )
    return te.create_prim_func([a, c])


def _mirrored(a: NDArray[Any]) -> NDArray[Any]:
    return a[:, ::-1] * 2.0 + 1.0


MIRRORED = Workload.of(Kernel("mirrored", "test", _build_mirrored, _mirrored, ({"n": WIDTH},)))
"""Each row doubled, then read backwards: thread j needs what thread WIDTH-1-j wrote."""


def hand_made(
    workload: Workload, target: Target, change: Callable[[Schedule, list[Any]], None]
) -> TensorIRProgram:
    """The unscheduled program after `change(schedule, blocks)`, whatever the rules say of it."""
    schedule = TensorIRProgram.start(workload, target).schedule
    change(schedule, list(schedule.get_child_blocks(schedule.get_sblock("root"))))
    return TensorIRProgram(workload, target, (), schedule)


def mirrored_rows(target: Target, scope: str) -> TensorIRProgram:
    """A block of threads for each row; its threads exchange the row through memory of `scope`.

    TVM puts a barrier between the two steps in shared memory, and none in global memory.
    """

    def change(schedule: Schedule, blocks: list[Any]) -> None:
        first, second = blocks
        row, column = schedule.get_loops(second)
        schedule.compute_at(first, row)
        if scope != "global":
            schedule.set_scope(first, 0, scope)
        schedule.bind(row, "blockIdx.x")
        schedule.bind(column, "threadIdx.x")
        schedule.bind(schedule.get_loops(first)[-1], "threadIdx.x")

    return hand_made(MIRRORED, target, change)


def verdict_without_barriers(removed: bool) -> tuple[str, str]:
    """Status and message of the gate on `mirrored_rows` in shared memory, whose source is built as it is or
    without its barriers. Runs here: call it in a process of its own."""
    target, compiler = opencl_target(), cast(OpenCLBackend, backend("opencl"))
    rules = Rules(b"secret", 0, dict.fromkeys(Level, _QUICK), None, "", 1e9, 1e9)
    naive = compiler.module_json(compiler.start(MIRRORED, target))
    bench = Workbench(MIRRORED, naive, target, rules)
    limits = device_limits(target)
    assert limits is not None
    program = mirrored_rows(target, "shared")
    code, _ = compile_device(completed(program).mod, compiler.tvm_target(target), limits)
    source = code.source.replace("barrier(CLK_LOCAL_MEM_FENCE);", ";") if removed else code.source
    assert (source != code.source) == removed
    kernels = LoadedKernels(replace(code, source=source), session(target))
    sets = [bench.draw(regime, "test") for regime in (Regime.RAMP, Regime.NORMAL)]
    outcome, _ = bench.gate(kernels, sets)
    return outcome.status.value, outcome.message


def with_statement(program: TensorIRProgram, line: str) -> TensorIRProgram:
    """`program` with one more statement after each store to C."""
    text = program.mod.script()
    store = next(t for t in text.splitlines() if t.strip().startswith("C[") and "] = " in t)
    indent = store[: len(store) - len(store.lstrip())]
    mod = tvm.script.from_source(text.replace(store, f"{store}\n{indent}{line}"))
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    return TensorIRProgram(program.workload, program.target, (), schedule)


def evaluators(**options: Any) -> Iterator[LocalEvaluator]:
    """For fixtures: an evaluator that is closed afterwards."""
    with opencl_evaluator(**options) as made:
        yield made
