"""A static cost model in µs: what bounds a kernel, by published figures of the GPU.

A compute unit holds as many blocks as occupancy allows; programs run in rounds of that many. A round
takes as long as its slowest part:

- latency: the stall cycles of one warp, which no other warp can shorten
- issue: all instructions of the resident warps through the unit's schedulers
- matrix: operations of `tt.dot` at the dense peak of their type
- special: exponentials and the like, four a cycle and scheduler
- l2: the bytes that loads and stores ask for, at the bandwidth of the L2 cache

The launch takes the sum of its rounds, or the time of its compulsory traffic at the bandwidth of
memory if that is longer. Not in it: the launch itself, waits for memory that too few warps hide,
the caches' misses. It ranks candidates of one kernel; it is no prediction of a clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.errors import InvalidValueError
from tirgym.harness.program import Program
from tirgym.harness.triton.gpus import Gpu
from tirgym.harness.triton.resources import Resources
from tirgym.harness.triton.work import Work
from tirgym.kernels_suite.triton.source import Launch

if TYPE_CHECKING:
    from tirgym.harness.triton.program import TritonProgram

__all__ = ["Code", "Predicted", "TritonCostModel", "matrix_tflops", "predicted"]

_SPECIAL_PER_SCHEDULER = 4
"""special functions a cycle and scheduler: 16 a cycle and multiprocessor (CUDA C++ Programming
Guide, throughput of native arithmetic instructions)"""


@dataclass(frozen=True, slots=True)
class Code:
    """Length of the machine code that one warp runs."""

    instructions: int
    """executed: outside of the hot loop once, inside once for each trip"""
    stall_cycles: int
    """sum of their stall counts; 0 where the machine code has none (AMD)"""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Time of one launch in µs and its parts, each as if it were alone."""

    total_us: float
    latency_us: float
    issue_us: float
    matrix_us: float
    special_us: float
    l2_us: float
    dram_us: float
    rounds: float
    """rounds of resident blocks, the last one in parts"""

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        parts = ("latency", "issue", "matrix", "special", "l2", "dram")
        return max(parts, key=lambda part: float(getattr(self, f"{part}_us")))


def matrix_tflops(gpu: Gpu, element: str) -> float:
    """Dense peak of the matrix units for operands of type `element`; the vector peak where they
    have no such format."""
    table = {"f16": gpu.fp16_tflops, "bf16": gpu.fp16_tflops, "i8": gpu.int8_tops}
    return table.get(element, gpu.tf32_tflops) or gpu.fp32_tflops


def predicted(
    gpu: Gpu, launch: Launch, resources: Resources, work: Work, code: Code, nbytes: int
) -> Predicted:
    """The time of one launch; `nbytes` is its compulsory traffic. Infinite where it cannot run."""
    resident = resources.occupancy.blocks
    if resident == 0:
        return Predicted(*(math.inf,) * 7, rounds=math.inf)
    cycle_us = 1e-3 / gpu.clock_ghz
    full, rest = divmod(launch.programs, resident * gpu.compute_units)
    blocks = [(full, resident), (1, math.ceil(rest / gpu.compute_units))]
    share = 1.0 / launch.programs
    matrix_us = sum(
        flops * share / (matrix_tflops(gpu, element) * 1e6 / gpu.compute_units)
        for element, flops in work.matrix_flops.items()
    )
    special = gpu.issue_per_unit * _SPECIAL_PER_SCHEDULER
    moved = (work.read_bytes + work.written_bytes) * share
    of_block = {
        "issue": code.instructions * launch.num_warps * gpu.issue_cycles
        / gpu.issue_per_unit * cycle_us,
        "matrix": matrix_us,
        "special": work.special * share / special * cycle_us,
        "l2": moved / (gpu.l2_bytes_per_cycle / gpu.compute_units) * cycle_us,
    }  # fmt: skip
    latency = code.stall_cycles * cycle_us
    parts = {name: 0.0 for name in ("latency", *of_block)}
    total = 0.0
    for count, held in blocks:
        times = {name: held * one for name, one in of_block.items()}
        times["latency"] = latency if held else 0.0
        total += count * max(times.values())
        for name, time in times.items():
            parts[name] += count * time
    dram_us = nbytes / (gpu.dram_gbs * 1e3)
    rounds = full + rest / (resident * gpu.compute_units)
    return Predicted(
        max(total, dram_us), parts["latency"], parts["issue"], parts["matrix"], parts["special"],
        parts["l2"], dram_us, rounds,
    )  # fmt: skip


class TritonCostModel:
    """`CostModel` for Triton programs: compiles in this process, measures nothing.

    Predictions are kept on disk, beside the compiled kernels, and in memory.
    """

    compiles = True
    """A prediction costs as much as a compilation: too much for ranking every action of a state."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}

    def predict_us(self, program: Program) -> float:
        """Predicted time of one launch in µs; raises InvalidValueError for another dialect and
        CompileFailedError for a program that does not compile or cannot be launched."""
        from tirgym.harness.triton.program import TritonProgram

        if not isinstance(program, TritonProgram):
            raise InvalidValueError("dialect of the Triton cost model", program.dialect, "triton")
        key = program.ir_key
        if key not in self._known:
            if len(self._known) >= _PREDICTIONS:
                self._known.clear()
            self._known[key] = _predicted(program)
        return self._known[key]


_PREDICTIONS = 1 << 16


def _predicted(program: TritonProgram) -> float:
    from tirgym.errors import CompileFailedError
    from tirgym.harness.triton.compiling import cache_key
    from tirgym.harness.triton.kept import kept
    from tirgym.harness.triton.profile import profile_without_layouts

    def predict() -> dict[str, float]:
        time = profile_without_layouts(program).predicted.total_us
        if not math.isfinite(time):
            raise CompileFailedError("launch", "a block needs more than a compute unit has")
        return {"predicted_us": time}

    parts = (cache_key(program.request), program.workload.uri)
    found = kept("predicted", parts, predict)
    assert found is not None  # `predict` answers or raises
    return float(found["predicted_us"])
