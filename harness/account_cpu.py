"""`cpu_account`: the account of a TensorIR program on a CPU, from its static profile."""

from __future__ import annotations

from tirgym.harness.account import Account, Quantity, Unit
from tirgym.harness.program import Program
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.static_profile import StaticProfile, static_profile

__all__ = ["CPU_QUANTITIES", "cpu_account"]

_IR = "counted in the IR over all iterations of one call"
_LOWERED = "counted after TVM's lowering passes, up to loop unrolling"
_FOOTPRINT = "cache lines by footprints of loop levels, cache warm (Wolf and Lam, PLDI 1991)"
_ISSUE = "instructions that are left after reuse in registers, by the static cost model"

CPU_QUANTITIES: tuple[Quantity, ...] = (
    Quantity("flops", "arithmetic operations", Unit.COUNT, _IR),
    Quantity("calls", "calls of mathematical functions", Unit.COUNT, _IR),
    Quantity("load_bytes", "loads", Unit.BYTES, _IR, column="loads"),
    Quantity("store_bytes", "stores", Unit.BYTES, _IR, column="stores"),
    Quantity(
        "intensity",
        "operations for each byte loaded or stored",
        Unit.PER_BYTE,
        "operations that the kernel needs, over loads and stores",
    ),
    Quantity(
        "strided_share",
        "loads and stores that jump by more than one element in the innermost loop",
        Unit.SHARE,
        "share of the bytes of loads and stores inside loops, by their linear indices",
        column="strided",
    ),
    Quantity("load_instructions", "load instructions", Unit.COUNT, _ISSUE, exact=False),
    Quantity("store_instructions", "store instructions", Unit.COUNT, _ISSUE, exact=False),
    Quantity(
        "register_vectors",
        "vector registers that hold reused values",
        Unit.COUNT,
        "in the block that holds most, by the static cost model",
        exact=False,
        column="registers",
    ),
    Quantity(
        "l2_bytes",
        "reads from L2",
        Unit.BYTES,
        _FOOTPRINT,
        exact=False,
        column="from L2",
        with_intensity="l2_intensity",
    ),
    Quantity(
        "l3_bytes",
        "reads from L3",
        Unit.BYTES,
        _FOOTPRINT,
        exact=False,
        column="from L3",
        with_intensity="l3_intensity",
    ),
    Quantity(
        "dram_bytes",
        "reads from memory",
        Unit.BYTES,
        _FOOTPRINT,
        exact=False,
        column="from memory",
        with_intensity="dram_intensity",
    ),
    Quantity("l2_back_bytes", "writes back to L2", Unit.BYTES, _FOOTPRINT, exact=False),
    Quantity("l3_back_bytes", "writes back to L3", Unit.BYTES, _FOOTPRINT, exact=False),
    Quantity("dram_back_bytes", "writes back to memory", Unit.BYTES, _FOOTPRINT, exact=False),
    Quantity(
        "l1_tile_bytes",
        "data of the loops that fit L1",
        Unit.BYTES,
        "lines touched by the outermost loop that fits, around the block executed most",
        exact=False,
    ),
    Quantity(
        "l2_tile_bytes",
        "data of the loops that fit L2",
        Unit.BYTES,
        "lines touched by the outermost loop that fits, around the block executed most",
        exact=False,
    ),
    Quantity(
        "temporary_bytes",
        "memory for temporaries",
        Unit.BYTES,
        f"{_LOWERED}, compacted to what one iteration of the loops around needs",
        column="temporaries",
        plural=False,
    ),
    Quantity(
        "local_bytes",
        "memory for temporaries in local scope",
        Unit.BYTES,
        _LOWERED,
        plural=False,
    ),
    Quantity(
        "vector_lanes",
        "lanes of the widest vectorized loop",
        Unit.COUNT,
        "extent of the loop that the schedule vectorizes, or width of the intrinsic; 0 without",
        column="lanes",
    ),
    Quantity("vector_bits", "bits of the widest vector", Unit.BITS, "lanes times element size"),
    Quantity(
        "vectorized_share",
        "work in vectorized loops",
        Unit.SHARE,
        "share of block executions",
        plural=False,
    ),
    Quantity(
        "parallel_iterations",
        "iterations of the widest parallel loop",
        Unit.COUNT,
        "extent of the loop; 0 without one",
        column="parallel",
    ),
    Quantity(
        "parallel_share",
        "work in parallel loops",
        Unit.SHARE,
        "share of block executions",
        plural=False,
    ),
    Quantity("busy_threads", "threads with work", Unit.COUNT, "no more than the target has"),
    Quantity("predicates", "tests of predicates", Unit.COUNT, _IR),
    Quantity("first_steps", "tests for the first step of a reduction", Unit.COUNT, _IR),
    Quantity("branches", "branches inside blocks", Unit.COUNT, _IR),
    Quantity("selects", "selections inside blocks", Unit.COUNT, _IR),
    Quantity(
        "conditions",
        "",
        Unit.COUNT,
        "the four kinds of tests together",
        column="conditions",
    ),
    Quantity("executions", "block executions", Unit.COUNT, _IR),
    Quantity("iterations", "loop iterations", Unit.COUNT, _LOWERED, column="iterations"),
    Quantity("statements", "statements in the code", Unit.COUNT, _LOWERED),
    Quantity("loops", "loops", Unit.COUNT, "loops of the schedule"),
    Quantity("blocks", "blocks", Unit.COUNT, "blocks of the schedule"),
    Quantity(
        "l2_intensity",
        "operations for each byte from L2",
        Unit.PER_BYTE,
        "operations that the kernel needs, over reads from L2; 0 without any",
        exact=False,
    ),
    Quantity(
        "l3_intensity",
        "operations for each byte from L3",
        Unit.PER_BYTE,
        "operations that the kernel needs, over reads from L3; 0 without any",
        exact=False,
    ),
    Quantity(
        "dram_intensity",
        "operations for each byte from memory",
        Unit.PER_BYTE,
        "operations that the kernel needs, over reads from memory; 0 without any",
        exact=False,
    ),
    Quantity(
        "predicted_us",
        "predicted time",
        Unit.MICROSECONDS,
        "static cost model",
        exact=False,
        column="predicted",
        plural=False,
    ),
)
"""In the order of sentences and columns. Registers, caches and times are those of the target's
machine model, not measurements."""

_MODEL = StaticCostModel()


def cpu_account(program: Program) -> Account:
    """The account of a TensorIR program; raises InvalidValueError for another dialect."""
    profile = static_profile(program, assembly=False, model=_MODEL)
    counts, lowered = profile.counts, profile.lowered
    executions = counts.executions or 1
    values: dict[str, float] = {
        "flops": profile.flops,
        "calls": counts.calls,
        "load_bytes": counts.load_bytes,
        "store_bytes": counts.store_bytes,
        "intensity": _over(profile.useful_flops, profile.l1_bytes),
        "strided_share": _over(counts.strided_bytes, counts.moving_bytes),
        "load_instructions": profile.load_instructions,
        "store_instructions": profile.store_instructions,
        "register_vectors": profile.register_vectors,
        "l2_bytes": profile.l2_bytes,
        "l3_bytes": profile.l3_bytes,
        "dram_bytes": profile.dram_bytes,
        **{f"{level}_back_bytes": nbytes for level, nbytes in profile.written_back.items()},
        "l1_tile_bytes": profile.l1_tile_bytes,
        "l2_tile_bytes": profile.l2_tile_bytes,
        "temporary_bytes": lowered.temporary_bytes,
        "local_bytes": lowered.local_bytes,
        "vector_lanes": profile.vector_lanes,
        "vector_bits": profile.vector_bits,
        "vectorized_share": counts.vector_executions / executions,
        "parallel_iterations": profile.parallel_iterations if counts.parallel_executions else 0,
        "parallel_share": counts.parallel_executions / executions,
        "busy_threads": min(profile.parallel_iterations, program.target.num_threads),
        "predicates": counts.predicates,
        "first_steps": counts.first_steps,
        "branches": counts.branches,
        "selects": counts.selects,
        "conditions": counts.conditions,
        "executions": counts.executions,
        "iterations": lowered.iterations,
        "statements": lowered.statements,
        "loops": profile.loops,
        "blocks": profile.blocks,
        "l2_intensity": _over(profile.useful_flops, profile.l2_bytes),
        "l3_intensity": _over(profile.useful_flops, profile.l3_bytes),
        "dram_intensity": _over(profile.useful_flops, profile.dram_bytes),
        "predicted_us": profile.predicted_us,
    }
    return Account(
        CPU_QUANTITIES,
        {quantity.name: values[quantity.name] for quantity in CPU_QUANTITIES},
        _buffers(profile),
        counts.exact,
    )


def _buffers(profile: StaticProfile) -> dict[str, dict[str, float]]:
    """Loads, stores and traffic by buffer name."""
    found: dict[str, dict[str, float]] = {
        "load_bytes": dict(profile.counts.loads),
        "store_bytes": dict(profile.counts.stores),
    }
    for level, traffic in profile.traffic.items():
        found[f"{level}_bytes"] = dict(traffic)
    temporaries: dict[str, float] = {}
    for each in profile.lowered.allocations:
        temporaries[each.name] = temporaries.get(each.name, 0) + each.nbytes
    found["temporary_bytes"] = temporaries
    return found


def _over(amount: float, by: float) -> float:
    return amount / by if by else 0.0
