"""How many cycles the instructions of one block take, from its loops and accesses.

The innermost loops become one straight run of code where the schedule or LLVM unrolls them; what
does not change in the loops around that run stays in registers. A run costs the busiest of
execution ports, issue slots and dependence chains (Fog, Instruction tables; Intel Optimization
Reference Manual). Where the schedule does not vectorize, the compiler's choices are tried: the
first loop it does not unroll, the straight code itself, or neither, whichever is cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tirgym.harness.static_accesses import BoundAccess
from tirgym.harness.static_ops import BlockOps
from tirgym.harness.tensorir.nest import UNROLLED, VECTORIZED

__all__ = ["BlockIssue", "CoreModel", "LoopShape", "issue_cycles"]


@dataclass(frozen=True, slots=True)
class CoreModel:
    """One core: widths and latencies in cycles. Defaults are those of recent x86 server cores.

    Latencies and throughputs: A. Fog, Instruction tables (Ice Lake to Golden Cove); window: Intel
    Optimization Reference Manual; unroll limit: LLVM's UnrollThreshold at -O3; the rest was fitted
    to measurements of random schedules (see benchmarks/static_cost_correlation.py).
    """

    vector_bytes: int = 64
    """of explicit vectors"""
    auto_vector_bytes: int = 32
    """that LLVM's vectorizers prefer (prefer-256-bit on most AVX-512 cores)"""
    registers: int = 32
    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 1.0
    issue_per_cycle: float = 5.0
    """sustained micro-operations"""
    window: float = 220.0
    """micro-operations in flight"""
    fma_latency: float = 4.0
    sum_latency: float = 4.0
    """of a scalar sum; LLVM takes its multiplications out of the chain"""
    memory_latency: float = 4.0
    """store-to-load forwarding"""
    divide_cycles: float = 6.0
    """of one vector division or square root"""
    call_cycles: float = 18.0
    """of one scalar call such as expf"""
    gather_cycles: float = 1.5
    """for each lane of a load that is not contiguous"""
    shuffle_cycles: float = 0.4
    """the same for strides of two to four elements, which whole vectors and shuffles serve"""
    scatter_cycles: float = 1.6
    loop_cycles: float = 2.0
    """micro-operations of one iteration for counters and branch"""
    entry_cycles: float = 3.0
    """set-up and the sometimes mispredicted exit of one loop"""
    predicate_cycles: float = 0.7
    index_cycles: float = 6.0
    """of a quotient and a remainder by a constant"""
    unroll_limit: float = 270.0
    """instructions of a loop that LLVM unrolls in full"""
    padded_vector: float = 1.8
    """cost of a vector whose lanes are no power of two but fit a register"""
    scattered_lane: float = 1.5
    """instructions for each lane where they do not"""


class LoopShape(NamedTuple):
    """One loop around a block."""

    variable: int
    extent: int
    kind: int
    alone: bool
    """no other block is below it"""


class BlockIssue(NamedTuple):
    """Cycles of all executions of one block, and what they are made of."""

    cycles: float
    lanes: int
    """elements that one vector instruction works on"""
    explicit: bool
    """vectorized by the schedule, as opposed to the compiler"""
    run_length: float
    """executions in one straight run of code"""
    registers: float
    """vector registers that hold reused values"""
    promoted: bool
    """the accumulator stays in registers over the loops around the run"""
    loads: float
    """load instructions, after reuse in registers; each lane of a gather is one"""
    stores: float


_NO_WRAPS: frozenset[int] = frozenset()


class _Work(NamedTuple):
    """A block as the plans see it."""

    loops: list[LoopShape]
    """innermost first"""
    accesses: tuple[BoundAccess, ...]
    ops: BlockOps
    has_init: bool
    predicated: bool
    item: int
    core: CoreModel


def issue_cycles(
    loops: list[LoopShape],
    accesses: tuple[BoundAccess, ...],
    ops: BlockOps,
    has_init: bool,
    predicated: bool,
    core: CoreModel,
) -> BlockIssue:
    """Cycles of all executions of one block; `loops` innermost first, `accesses` reads then writes."""
    item = accesses[-1].item if accesses else 4
    if not ops.accumulates and accesses and not accesses[-1].wraps:
        # the loop writes row by row: quotient and remainder of its reads cost next to nothing
        accesses = tuple(a._replace(wraps=_NO_WRAPS) if a.wraps else a for a in accesses)
    work = _Work(loops, accesses, ops, has_init, predicated, item, core)
    if loops and loops[0].kind == VECTORIZED:
        return _plan(work, loops[0].variable, max(1, loops[0].extent), True)
    best = _plan(work, 0, 1, False)
    if predicated or ops.calls or ops.index_ops or not accesses:
        return best
    for variable, lanes in _candidates(work):
        plan = _plan(work, variable, lanes, False)
        if plan.cycles < best.cycles:
            best = plan
    return best


def _candidates(work: _Work) -> list[tuple[int, int]]:
    """Loops that LLVM may vectorize by itself, with lanes: inside the straight run, and around it."""
    write = work.accesses[-1]
    most = max(1, work.core.auto_vector_bytes // work.item)
    size = _body_instructions(work, 1.0)
    found: list[tuple[int, int]] = []
    length = 1.0
    for shape in work.loops:
        length *= shape.extent
        straight = shape.kind == UNROLLED or (
            shape.alone and length * size <= work.core.unroll_limit
        )
        stride = write.strides.get(shape.variable, 0.0)
        free = stride == 0.0 and work.ops.additive and not work.ops.floating
        wraps = any(shape.variable in access.wraps for access in work.accesses)
        if shape.extent >= 4 and (stride == 1.0 or free) and not wraps:
            found.append((shape.variable, min(most, 1 << (shape.extent.bit_length() - 1))))
        if not straight:
            break
    return found


def _body_instructions(work: _Work, vectors: float) -> float:
    ops = work.ops
    return vectors * (1.0 + ops.vector_ops + sum(ops.loads.values()) + ops.stores) + 4.0


def _plan(work: _Work, variable: int, lanes: int, explicit: bool) -> BlockIssue:
    """Cycles when the loop `variable` runs on vectors of `lanes` elements."""
    core, ops = work.core, work.ops
    vectors = 1.0
    if explicit:
        vectors = _machine_vectors(lanes, max(1, core.vector_bytes // work.item), core)
    run, outside = _straight_run(work, variable, lanes, explicit, vectors)
    length = 1.0
    for _, extent in run:
        length *= extent
    runs, entries = _repetitions(work, outside)
    reuse = _reuse(work, variable, lanes, vectors, run, outside)
    arithmetic = length * vectors * (ops.vector_ops + (1.0 if reuse.conditional else 0.0))
    micro = arithmetic + reuse.loads + reuse.stores + core.loop_cycles
    cycles = max(
        arithmetic / core.fma_per_cycle,
        reuse.loads / core.loads_per_cycle,
        reuse.stores / core.stores_per_cycle,
        micro / core.issue_per_cycle,
    )
    cycles += reuse.scattered + _special(work, length, lanes, vectors, explicit)
    if ops.accumulates and work.accesses:
        chain = _chain(work, lanes, run, outside, micro, reuse.promoted)
        cycles = max(cycles, chain)
    total = runs * cycles + entries * core.entry_cycles + _wrapped(work) * core.index_cycles
    loads = runs * (reuse.loads + reuse.gathered_lanes)
    stores = runs * (reuse.stores + reuse.scattered_lanes)
    return BlockIssue(total, lanes, explicit, length, reuse.held, reuse.promoted, loads, stores)


def _machine_vectors(lanes: int, width: int, core: CoreModel) -> float:
    """Machine instructions of one operation on `lanes` elements, `width` to a register.

    LLVM pads an odd number of lanes to one register, and takes an odd number over several registers
    apart into single elements.
    """
    power = 1 << (lanes - 1).bit_length()
    if power == lanes:
        return max(1.0, lanes / width)
    return core.padded_vector if power <= width else lanes * core.scattered_lane


def _straight_run(
    work: _Work, variable: int, lanes: int, explicit: bool, vectors: float
) -> tuple[list[tuple[int, float]], list[LoopShape]]:
    """(variable, extent) of the loops that become straight code, and the loops around them."""
    run: list[tuple[int, float]] = []
    size = _body_instructions(work, vectors)
    length = 1.0
    rest = work.loops[1:] if explicit else work.loops
    if variable and not explicit:
        rest = [
            s._replace(extent=-(-s.extent // lanes)) if s.variable == variable else s for s in rest
        ]
    for at, shape in enumerate(rest):
        grown = length * shape.extent
        if shape.kind != UNROLLED and not (shape.alone and grown * size <= work.core.unroll_limit):
            return run, rest[at:]
        run.append((shape.variable, float(shape.extent)))
        length = grown
    return run, []


def _repetitions(work: _Work, outside: list[LoopShape]) -> tuple[float, float]:
    """How often the run is executed and the loops around it are entered.

    A result that no access of a loop changes is computed before that loop (LICM), unless it
    accumulates.
    """
    first = 0
    if not work.ops.accumulates:
        while first < len(outside) and not any(
            access.strides.get(outside[first].variable) for access in work.accesses
        ):
            first += 1
    runs, entries = 1.0, 0.0
    for shape in reversed(outside[first:]):
        entries += runs
        runs *= shape.extent
    return runs, entries


def _wrapped(work: _Work) -> float:
    """How often quotients and remainders of fused loops are computed."""
    variables = {variable for access in work.accesses for variable in access.wraps}
    if not variables:
        return 0.0
    total, times = 0.0, 1.0
    for shape in reversed(work.loops):
        times *= shape.extent
        if shape.variable in variables:
            total += times
    return total


class _Reuse(NamedTuple):
    """Memory instructions of one run after reuse in registers."""

    loads: float
    stores: float
    scattered: float
    """cycles of gathers and scatters"""
    gathered_lanes: float
    scattered_lanes: float
    held: float
    promoted: bool
    conditional: bool
    """the initialisation is decided inside the run"""


def _reuse(
    work: _Work,
    variable: int,
    lanes: int,
    vectors: float,
    run: list[tuple[int, float]],
    outside: list[LoopShape],
) -> _Reuse:
    core, ops = work.core, work.ops
    loads = stores = scattered = held = 0.0
    gathered_lanes = scattered_lanes = 0.0
    promoted = conditional = False
    target = work.accesses[-1].buffer if work.accesses else 0
    for access in reversed(work.accesses):
        strides = access.strides
        unique = 1.0
        for loop, extent in run:
            if strides.get(loop):
                unique *= extent
        hoist = 1.0
        for shape in outside:
            if strides.get(shape.variable) or not shape.alone:
                break
            hoist *= shape.extent
        stride = strides.get(variable, 0.0) if lanes > 1 else 0.0
        if abs(stride) < 1.0 and variable not in access.wraps:
            stride = 0.0
        wide = vectors if stride else 1.0
        need = unique * wide
        if access.buffer == target and ops.accumulates:
            if access.write:
                # where the next loop does not reduce, the test moves out of it (loop unswitching)
                reducing = bool(outside) and not strides.get(outside[0].variable)
                conditional = work.has_init and reducing and unique > 1.0
                promoted = hoist > 1.0 and not conditional and need <= core.registers
                held += need if promoted else 0.0
                if not promoted and need > core.registers:
                    loads += 0.5 * need
                    stores += 0.5 * need
                if work.has_init:
                    loads += 0.0 if promoted else need
            hoist = hoist if promoted else 1.0
        elif hoist > 1.0:
            if held + need <= core.registers:
                held += need
            elif lanes > 1 and stride not in (0.0, 1.0):
                loads += need  # hoisted once, kept on the stack
            else:
                hoist = 1.0
        count = access.times
        if lanes > 1 and (stride not in (0.0, 1.0) or variable in access.wraps):
            each = core.scatter_cycles if access.write else core.gather_cycles
            each = core.shuffle_cycles if 1.0 < abs(stride) <= 4.0 else each
            moved = unique * count * lanes / hoist
            scattered += moved * each
            gathered_lanes += 0.0 if access.write else moved
            scattered_lanes += moved if access.write else 0.0
        elif access.write:
            stores += need / hoist
        else:
            loads += need * count / hoist
    return _Reuse(
        loads, stores, scattered, gathered_lanes, scattered_lanes, held, promoted, conditional
    )


def _special(work: _Work, length: float, lanes: int, vectors: float, explicit: bool) -> float:
    """Cycles of divisions, calls, branches and index arithmetic of one run."""
    core, ops = work.core, work.ops
    cycles = vectors * ops.divisions * core.divide_cycles + lanes * ops.calls * core.call_cycles
    branches = ops.branches + (1 if work.predicated else 0)
    cycles += branches * core.predicate_cycles * (lanes if explicit else 1)
    cycles += ops.index_ops * (lanes if explicit else 1)
    return length * cycles


def _chain(
    work: _Work,
    lanes: int,
    run: list[tuple[int, float]],
    outside: list[LoopShape],
    micro: float,
    promoted: bool,
) -> float:
    """Cycles of one run if dependence chains were all: critical path over runs that overlap."""
    core, ops = work.core, work.ops
    write = work.accesses[-1]
    strides = {v: s for v, s in write.strides.items() if v not in write.wraps}
    depth = 1.0
    for loop, extent in run:
        if not strides.get(loop):
            depth *= extent
    if depth == 1.0 and all(s.extent == 1 or strides.get(s.variable) for s in outside):
        return 0.0
    step = core.sum_latency if lanes == 1 and ops.additive else core.fma_latency
    path = depth * step + (0.0 if promoted else core.memory_latency)
    reach = max(1.0, core.window / max(1.0, micro))
    overlapping = seen = 1.0
    for shape in outside:
        if strides.get(shape.variable):
            overlapping *= min(float(shape.extent), max(1.0, reach / seen))
        seen *= shape.extent
        if seen >= reach:
            break
    return path / overlapping
