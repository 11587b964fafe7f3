"""`static_profile`: what a program does and needs, known without running it.

Work and traffic come from the loop nest (see `static_cost`), instructions from the assembly. A
measured time turns the profile into a position on the roofline (Williams, Waterman and Patterson,
Roofline, CACM 2009).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.calibration import Peaks
from tirgym.harness.hardware import cpu_facts
from tirgym.harness.instruction_mix import InstructionMix, instruction_mix
from tirgym.harness.program import Program
from tirgym.harness.static_checks import statement_count
from tirgym.harness.static_cost import BlockCost, MachineModel, StaticCostModel, machine_model
from tirgym.harness.static_counts import NestCounts, nest_counts, vector_intrinsic
from tirgym.harness.static_footprint import LINE, fitting_lines, lines_by_buffer
from tirgym.harness.static_lowering import LoweredCounts, lowered_counts
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
    l1_bytes: int
    """bytes that loads and stores of the blocks ask for, before any reuse in registers"""
    l2_bytes: float
    """bytes that come from L2 into L1, from footprints (see `static_footprint`)"""
    l3_bytes: float
    dram_bytes: float
    traffic: Mapping[str, Mapping[str, float]]
    """the last three by level ("l2", "l3", "dram") and buffer name"""
    written_back: Mapping[str, float]
    """bytes of lines that were written and go back, by level"""
    l1_tile_bytes: float
    """what the outermost loop touches that fits L1, around the block that is executed most"""
    l2_tile_bytes: float
    footprint_bytes: int
    """all buffers, intermediates included"""
    intermediate_bytes: int
    arithmetic_intensity: float
    """flops for each compulsory byte"""
    vector_lanes: int
    """lanes of the widest vectorized loop or intrinsic; 0 if the schedule vectorizes nothing"""
    vector_bits: int
    """bits of one such vector, which may be wider than a register"""
    vectorized_share: float
    """share of block executions that are inside vectorized loops, or intrinsics"""
    register_vectors: float
    """estimated vector registers that hold reused values, in the block that holds most"""
    load_instructions: float
    """estimated, after reuse in registers"""
    store_instructions: float
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
    counts: NestCounts
    """what one call executes"""
    lowered: LoweredCounts
    """loops and temporaries that are left when code is generated"""
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


def _intermediate_bytes(program: TensorIRProgram) -> int:
    """All buffers that are no parameters, in the shape that the schedule gives them."""
    params = {hash(p) for p in program.mod["main"].params}
    inner: dict[int, int] = {}
    for block in program.nest.blocks:
        for access in (*block.facts.reads, *block.facts.writes):
            if access.buffer.handle not in params:
                inner[access.buffer.handle] = access.buffer.nbytes
    return sum(inner.values())


def _traffic(
    nest: LoopNest, costs: list[BlockCost], machine: MachineModel
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Bytes that enter L1 (from "l2"), L2 and L3 by buffer name, and those that go back."""
    blocks = [cost.touched for cost in costs]
    accesses = [a for b in nest.blocks for a in (*b.facts.reads, *b.facts.writes)]
    names = {access.buffer.handle: access.buffer.name for access in accesses}
    written = {buffer for mine in blocks for buffer in mine.writes}
    levels = (("l2", machine.l1_lines), ("l3", machine.l2_lines), ("dram", machine.l3_lines))
    traffic: dict[str, dict[str, float]] = {}
    back: dict[str, float] = {}
    for level, capacity in levels:
        lines = lines_by_buffer(nest, blocks, capacity)
        traffic[level] = {}
        for buffer, count in lines.items():
            name = names[buffer]
            traffic[level][name] = traffic[level].get(name, 0.0) + count * LINE
        back[level] = sum(count * LINE for buffer, count in lines.items() if buffer in written)
    return traffic, back


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
    parts, costs = (model or StaticCostModel()).analysis(program)
    machine = machine_model(program.target)
    inner = _intermediate_bytes(program)
    outer, useful = bytes_of(program.workload), flops_of(program.workload)
    lanes, bits, share = _vectors(nest)
    traffic, back = _traffic(nest, costs, machine)
    busiest = max(nest.blocks, key=lambda block: _executions(nest, block.index), default=None)
    touched = costs[busiest.index].touched if busiest else None
    counts = nest_counts(nest)
    mix = None
    if assembly:
        compiler = backend(program.target.backend)
        if "asm" in compiler.levels:
            mix = instruction_mix(compiler.ir_level(program, "asm"))
    return StaticProfile(
        flops=counts.flops,
        useful_flops=useful,
        compulsory_bytes=outer,
        l1_bytes=counts.load_bytes + counts.store_bytes,
        l2_bytes=parts.l1_miss_lines * LINE,
        l3_bytes=parts.l2_miss_lines * LINE,
        dram_bytes=parts.l3_miss_lines * LINE,
        traffic=traffic,
        written_back=back,
        l1_tile_bytes=fitting_lines(touched, machine.l1_lines) * LINE if touched else 0.0,
        l2_tile_bytes=fitting_lines(touched, machine.l2_lines) * LINE if touched else 0.0,
        footprint_bytes=outer + inner,
        intermediate_bytes=inner,
        arithmetic_intensity=useful / outer if outer else 0.0,
        vector_lanes=lanes,
        vector_bits=bits,
        vectorized_share=share,
        register_vectors=parts.register_vectors,
        load_instructions=sum(cost.issue.loads for cost in costs),
        store_instructions=sum(cost.issue.stores for cost in costs),
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
        counts=counts,
        lowered=lowered_counts(program),
        mix=mix,
    )


def _vectors(nest: LoopNest) -> tuple[int, int, float]:
    """Lanes and bits of the widest vector, and the share of executions that are vectors."""
    lanes = bits = inside = total = 0
    for block in nest.blocks:
        runs = _executions(nest, block.index)
        total += runs
        wide = [nest.loops[i].extent for i in block.chain if nest.loops[i].kind == VECTORIZED]
        if vector_intrinsic(block):
            wide = [math.prod(extent for _, extent in block.facts.writes[0].region)]
        if wide:
            inside += runs
            buffer = block.facts.writes[0].buffer
            item = buffer.nbytes // max(1, math.prod(buffer.shape))
            lanes = max(lanes, wide[0])
            bits = max(bits, wide[0] * item * 8)
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
