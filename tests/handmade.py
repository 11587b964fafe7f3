"""Hand-made programs for tests of the evaluator: one small kernel, and everything that can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.s_tir import Schedule

from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import Call, TimingPlan
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Kernel, Workload

__all__ = [
    "KERNEL",
    "PLANS",
    "ROWS",
    "WIDTH",
    "WORKLOAD",
    "SetTimer",
    "annotated",
    "edited",
    "extern",
    "host",
    "program_of",
    "quick",
    "right",
    "start",
    "tiled",
    "workbench",
    "written_as",
]

ROWS, WIDTH = 48, 40
_QUICK = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)
PLANS = {Level.TRAINING: _QUICK, Level.FULL: _QUICK}
"""Timing that takes no time and is never too noisy."""


def _build(shape: Any) -> Any:
    return _func(lambda a, i, j: a[i, j] * tirx.const(2.0, "float32") + tirx.const(1, "float32"))


def _func(value: Callable[[Any, Any, Any], Any]) -> Any:
    a = te.placeholder((ROWS, WIDTH), name="A")
    b = te.compute((ROWS, WIDTH), lambda i, j: value(a, i, j), name="B")
    return te.create_prim_func([a, b])


def _reference(a: NDArray[np.float64]) -> NDArray[np.float64]:
    return a * 2.0 + 1.0


KERNEL = Kernel("twice_plus_one", "test", _build, _reference, ({"m": ROWS, "n": WIDTH},))
WORKLOAD = Workload.of(KERNEL)


def host(num_threads: int = 1) -> Target:
    """This machine."""
    return backend("llvm").target(num_threads=num_threads)


def start() -> TensorIRProgram:
    """The unscheduled program."""
    return TensorIRProgram.start(WORKLOAD, host())


def program_of(mod: Any, workload: Workload = WORKLOAD) -> TensorIRProgram:
    """`mod` as if it were a scheduled program of `workload`."""
    schedule = Schedule(mod, debug_mask="none", error_render_level="none")
    return TensorIRProgram(workload, host(), (), schedule)


def written_as(value: Callable[[Any, Any, Any], Any]) -> TensorIRProgram:
    """A program whose output element (i, j) is `value(A, i, j)`."""
    func = _func(value).with_attr("global_symbol", "main")
    return program_of(tvm.IRModule({"main": func}))


def right(a: Any, i: Any, j: Any) -> Any:
    """The right value."""
    return a[i, j] * tirx.const(2.0, "float32") + tirx.const(1, "float32")


def edited(change: Callable[[Schedule, Any], None]) -> TensorIRProgram:
    """The unscheduled program after `change(schedule, block)`."""
    schedule = start().schedule
    change(schedule, schedule.get_child_blocks(schedule.get_sblock("root"))[0])
    return TensorIRProgram(WORKLOAD, host(), (), schedule)


def extern(dtype: str, name: str, *arguments: Any) -> Any:
    """A call of a C function of the process."""
    return tirx.call_extern(dtype, name, *arguments)


def tiled(factor: int = 8) -> TensorIRProgram:
    """A right program: rows in tiles."""

    def change(schedule: Any, block: Any) -> None:
        i, j = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, factor])
        schedule.reorder(outer, j, inner)

    return edited(change)


def annotated() -> TensorIRProgram:
    """Another IR than `tiled`, the same machine code."""
    program = tiled()
    schedule = program.schedule
    schedule.annotate(
        schedule.get_child_blocks(schedule.get_sblock("root"))[0], "a_note", "to nobody"
    )
    return TensorIRProgram(program.workload, program.target, (), schedule)


def quick(store: Any = ":memory:", **options: Any) -> LocalEvaluator:
    """An evaluator that times by `PLANS`."""
    return LocalEvaluator(host(), store, **{"plans": PLANS, **options})


class SetTimer:
    """A timer by which every program takes as long as it is told."""

    name = "set"

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds

    def time(self, call: Call, calls: int) -> float:
        for _ in range(calls):
            call.function(*call.arguments)
        return self.seconds.get(id(call.function), 1e-3)


def workbench(timer: Any, tmp_path: Path) -> Workbench:
    """A workbench in this process."""
    rules = Rules(b"secret", 0, PLANS, timer, str(tmp_path / "lock"), 1e9, 1e9)
    text = backend("llvm").module_json(start())
    made = Workbench(WORKLOAD, text, host(), rules)
    made.naive_s = 1e-3
    return made
