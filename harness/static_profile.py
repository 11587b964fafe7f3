"""`static_profile`: what a program does and needs, known without running it.

Work and traffic come from the loop nest (see `static_cost`), instructions from the assembly. A
measured time turns the profile into a position on the roofline (Williams, Waterman and Patterson,
Roofline, CACM 2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.calibration import Peaks
from tirgym.harness.hardware import cpu_facts
from tirgym.harness.instruction_mix import InstructionMix, instruction_mix
from tirgym.harness.program import Program
from tirgym.harness.static_checks import statement_count
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_footprint import LINE
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.nest import PARALLEL, VECTORIZED, LoopNest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.problem import bytes_of, flops_of

__all__ = ["Roofline", "StaticProfile", "roofline", "static_profile"]


@dataclass(frozen=True, slots=True)
class StaticProfile:
    """Work, memory, parallelism and code of one program."""

    flops: int
    """arithmetic operations of one call, repeated work included; a multiply-add counts two"""
    useful_flops: int
    """that the kernel needs (`flops_of`)"""
    compulsory_bytes: int
    """each input read once and each output written once"""
    l1_bytes: float
    """bytes that loads and stores of the blocks ask for, before any reuse in registers"""
    l2_bytes: float
    """bytes that move between L1 and L2, from footprints (see `static_footprint`)"""
    l3_bytes: float
    dram_bytes: float
    footprint_bytes: int
    """all buffers, intermediates included"""
    intermediate_bytes: int
    arithmetic_intensity: float
    """flops for each compulsory byte"""
    vector_lanes: int
    """lanes of the widest vectorized loop; 0 if the schedule vectorizes nothing"""
    vector_bits: int
    """bits of one such vector, which may be wider than a register"""
    vectorized_share: float
    """share of block executions that are inside vectorized loops"""
    register_vectors: float
    """estimated vector registers that hold reused values, in the block that holds most"""
    parallel_iterations: int
    """iterations of the widest parallel loop; 1 if none"""
    branches: int
    """conditions inside blocks, and predicates"""
    loops: int
    blocks: int
    statements: int
    """after unrolling, in machine vectors"""
    predicted_us: float
    """by the static cost model"""
    mix: InstructionMix | None
    """from the assembly; None where it is not read (not x86-64, or not asked for)"""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Where a time stands against what the machine could do."""

    achieved_gflops: float
    attainable_gflops: float
    """min(peak, intensity times bandwidth)"""
    fraction: float
    """achieved / attainable; for kernels without arithmetic the same of bytes a second"""
    bound: str
    """"compute" or "memory" """
    level: str
    """memory level whose bandwidth counts: the nearest one that holds the data"""
    floor_us: float
    """time at the roof"""


def _executions(nest: LoopNest, index: int) -> int:
    return math.prod(max(1, nest.loops[i].extent) for i in nest.blocks[index].chain)


def _total_flops(nest: LoopNest) -> int:
    return sum(
        _executions(nest, block.index) * block_ops(block.facts.node).flops for block in nest.blocks
    )


def _buffers(program: TensorIRProgram) -> tuple[int, int]:
    """Bytes of intermediate buffers, and bytes asked for by loads and stores."""
    params = {hash(p) for p in program.mod["main"].params}
    inner: dict[int, int] = {}
    asked = 0
    for block in program.nest.blocks:
        runs = _executions(program.nest, block.index)
        loads = block_ops(block.facts.node).loads
        for access in (*block.facts.reads, *block.facts.writes):
            buffer = access.buffer
            if buffer.handle not in params:
                inner[buffer.handle] = buffer.nbytes
            item = buffer.nbytes // max(1, math.prod(buffer.shape))
            asked += runs * item * max(1, loads.get(buffer.handle, 1))
    return sum(inner.values()), asked


def static_profile(
    program: Program, assembly: bool = True, model: StaticCostModel | None = None
) -> StaticProfile:
    """The profile of `program`; `assembly` False leaves the compiler out (about 1 ms).

    With assembly it compiles in this process and raises what the compiler raises. Raises
    InvalidValueError for a program in another dialect than TensorIR.
    """
    if not isinstance(program, TensorIRProgram):
        raise InvalidValueError("dialect of the static profile", program.dialect, "tensorir")
    nest = program.nest
    parts = (model or StaticCostModel()).parts(program)
    inner, asked = _buffers(program)
    outer, useful = bytes_of(program.workload), flops_of(program.workload)
    lanes, bits, share = _vectors(nest)
    mix = None
    if assembly:
        compiler = backend(program.target.backend)
        mix = instruction_mix(compiler.ir_level(program, "asm"))
    return StaticProfile(
        flops=_total_flops(nest),
        useful_flops=useful,
        compulsory_bytes=outer,
        l1_bytes=asked,
        l2_bytes=parts.l1_miss_lines * LINE,
        l3_bytes=parts.l2_miss_lines * LINE,
        dram_bytes=parts.l3_miss_lines * LINE,
        footprint_bytes=outer + inner,
        intermediate_bytes=inner,
        arithmetic_intensity=useful / outer if outer else 0.0,
        vector_lanes=lanes,
        vector_bits=bits,
        vectorized_share=share,
        register_vectors=parts.register_vectors,
        parallel_iterations=max(
            (loop.extent for loop in nest.loops if loop.kind == PARALLEL), default=1
        ),
        branches=sum(
            block_ops(block.facts.node).branches + block.has_predicate for block in nest.blocks
        ),
        loops=len(nest.loops),
        blocks=len(nest.blocks),
        statements=statement_count(nest),
        predicted_us=parts.total_us,
        mix=mix,
    )


def _vectors(nest: LoopNest) -> tuple[int, int, float]:
    """Lanes and bits of the widest vectorized loop, and the share of executions inside any."""
    lanes = bits = inside = total = 0
    for block in nest.blocks:
        runs = _executions(nest, block.index)
        total += runs
        extents = [nest.loops[i].extent for i in block.chain if nest.loops[i].kind == VECTORIZED]
        if extents:
            inside += runs
            buffer = block.facts.writes[0].buffer
            item = buffer.nbytes // max(1, math.prod(buffer.shape))
            lanes = max(lanes, extents[0])
            bits = max(bits, extents[0] * item * 8)
    return lanes, bits, inside / total if total else 0.0


def roofline(program: Program, profile: StaticProfile, time_us: float, peaks: Peaks) -> Roofline:
    """The position of a program that takes `time_us` under `peaks` (float32).

    The bandwidth is that of the nearest level that holds all parameters, since timing runs warm.
    Useful operations count, so repeated work does not look like speed. Raises InvalidValueError
    unless the time is positive.
    """
    if not time_us > 0:
        raise InvalidValueError("time_us", time_us, "a positive number")
    facts = cpu_facts(program.target)
    threads = max(1, min(program.target.num_threads, facts.cores))
    nbytes = profile.compulsory_bytes
    levels = (
        ("L1", facts.l1_bytes * threads, peaks.l1_gbs),
        ("L2", facts.l2_bytes * threads, peaks.l2_gbs),
        ("L3", facts.l3_bytes, peaks.l3_gbs),
        ("DRAM", math.inf, peaks.dram_gbs),
    )
    level, _, bandwidth = next(entry for entry in levels if nbytes <= entry[1])
    compute_us = profile.useful_flops / (peaks.gflops * 1e3)
    memory_us = nbytes / (bandwidth * 1e3)
    floor = max(compute_us, memory_us)
    return Roofline(
        achieved_gflops=profile.useful_flops / (time_us * 1e3),
        attainable_gflops=profile.useful_flops / (floor * 1e3) if floor else 0.0,
        fraction=floor / time_us,
        bound="compute" if compute_us >= memory_us else "memory",
        level=level,
        floor_us=floor,
    )
