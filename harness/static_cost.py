"""`StaticCostModel`: predicted time of a TensorIR program from its loops and accesses alone.

Time is the roofline sum of two parts (Williams, Waterman and Patterson, Roofline, CACM 2009): cycles
to issue the instructions (`static_issue`), and cycles to move cache lines (`static_footprint`).
What counts as a feature follows Ansor (Zheng et al., OSDI 2020) and TVM's `PerStoreFeature`; the
weights are fixed constants, not learned ones, so the answer depends on the program and its target
and on nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from tirgym.errors import InvalidValueError
from tirgym.harness.hardware import vector_unit
from tirgym.harness.program import Program
from tirgym.harness.static_footprint import (
    LINE,
    BoundAccess,
    Footprint,
    LoopTree,
    Prices,
    bound_accesses,
    footprints,
)
from tirgym.harness.static_issue import BlockIssue, CoreModel, LoopShape, issue_cycles
from tirgym.harness.static_ops import block_ops
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import PARALLEL, UNROLLED, VECTORIZED, Block, LoopNest
from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["BlockCost", "CostParts", "MachineModel", "StaticCostModel", "machine_model"]


_FROM_L2 = Prices(2.0, 3.0, 3.5, 3.0)
_FROM_L3 = Prices(9.0, 12.0, 6.0, 6.0)
_FROM_DRAM = Prices(30.0, 50.0, 20.0, 20.0)
_LOOK_UP = Prices(1.2, 4.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class MachineModel:
    """A core, its caches, and what moving a line costs.

    Line prices in cycles, close to the bandwidths of one core of a shared server (see
    `calibration`) and rounded after a fit to measured random schedules.
    """

    core: CoreModel = field(default_factory=CoreModel)
    ghz: float = 3.8
    l1_lines: float = 48 * 1024 / LINE
    l2_lines: float = 1.5 * 1024**2 / LINE
    l3_lines: float = 32 * 1024**2 / LINE
    """what one of several users of a shared cache can count on"""
    tlb_pages: float = 64.0
    """entries of the first-level data TLB, pages of 4 KiB"""
    from_l2: Prices = _FROM_L2
    from_l3: Prices = _FROM_L3
    from_dram: Prices = _FROM_DRAM
    look_up: Prices = _LOOK_UP
    """of a page in the second-level TLB"""
    overlap: float = 0.3
    """share of the smaller part (issue or memory) that the larger does not hide"""
    call_us: float = 0.3
    """of one call of an empty kernel"""
    parallel_us: float = 5.0
    """to wake the threads of one parallel loop"""


@lru_cache(maxsize=32)
def machine_model(target: Target) -> MachineModel:
    """The model for `target`: the vector unit of its mcpu, caches of a plain server core.

    Nothing is asked of this machine, so that a prediction is the same on every machine.
    """
    bits, _, registers = vector_unit(target.arch)
    core = CoreModel(
        vector_bytes=bits // 8, auto_vector_bytes=min(32, bits // 8), registers=registers
    )
    return MachineModel(core)


class BlockCost(NamedTuple):
    """One block: its issue cycles, and cache lines per access and loop level."""

    issue: BlockIssue
    accesses: tuple[BoundAccess, ...]
    touched: tuple[Footprint, ...]


@dataclass(frozen=True, slots=True)
class CostParts:
    """What a prediction is made of; cycles of one thread."""

    issue_cycles: float
    memory_cycles: float
    l1_miss_lines: float
    l2_miss_lines: float
    l3_miss_lines: float
    register_vectors: float
    """vector registers with reused values, in the block that holds most"""
    total_us: float


class StaticCostModel:
    """Deterministic analytic cost; a `CostModel`. About 0.1 ms a program that shares blocks with
    programs seen before.

    Raises InvalidValueError for a program in another dialect than TensorIR.
    """

    def __init__(self, limit: int = 1 << 11) -> None:
        self._limit = limit
        self._costs: dict[Any, tuple[Any, BlockCost]] = {}
        self._target: Target | None = None

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""
        return self.parts(program).total_us

    def parts(self, program: Program) -> CostParts:
        """The prediction with what it is made of."""
        if not isinstance(program, TensorIRProgram):
            raise InvalidValueError("dialect of the static cost model", program.dialect, "tensorir")
        nest = program.nest
        model = machine_model(program.target)
        if program.target != self._target:
            self._target = program.target
            self._costs.clear()
        costs = [self._block_cost(nest, block, model) for block in nest.blocks]
        serial = sum(cost.issue.cycles for cost in costs)
        issue = sum(
            cost.issue.cycles / _speedup(nest, block, program.target)
            for cost, block in zip(costs, nest.blocks, strict=True)
        )
        tree = LoopTree(nest, [(cost.accesses, cost.touched) for cost in costs])
        l1, from_l2 = tree.line_traffic(model.l1_lines, model.from_l2)
        l2, from_l3 = tree.line_traffic(model.l2_lines, model.from_l3) if l1 else (0.0, 0.0)
        l3, from_dram = tree.line_traffic(model.l3_lines, model.from_dram) if l2 else (0.0, 0.0)
        _, look_ups = tree.page_traffic(model.tlb_pages, model.look_up)
        memory = from_l2 + from_l3 + from_dram + look_ups
        memory *= issue / serial if serial else 1.0
        cycles = max(issue, memory) + model.overlap * min(issue, memory)
        launches = sum(loop.kind == PARALLEL for loop in nest.loops)
        total = cycles / (model.ghz * 1e3) + model.call_us + launches * model.parallel_us
        held = max((cost.issue.registers for cost in costs), default=0.0)
        return CostParts(issue, memory, l1, l2, l3, held, total)

    def _block_cost(self, nest: LoopNest, block: Block, model: MachineModel) -> BlockCost:
        """The parts that depend on one block and the loops around it; cached by both."""
        shapes = _shapes(nest, block)
        key = (hash(block.realize), *shapes)
        hit = self._costs.get(key)
        if hit is not None:
            return hit[1]
        accesses = bound_accesses(block)
        facts = block.facts
        issue = issue_cycles(
            shapes,
            accesses,
            block_ops(facts.node),
            facts.has_init,
            block.has_predicate,
            model.core,
        )
        loops = [(shape.variable, shape.extent) for shape in shapes]
        touched = footprints(accesses, loops)
        made = BlockCost(issue, accesses, touched)
        if len(self._costs) >= self._limit:
            self._costs.clear()
        self._costs[key] = (
            block.realize,
            made,
        )  # the node stays alive, so its handle stays its own
        return made


def _shapes(nest: LoopNest, block: Block) -> list[LoopShape]:
    """The loops around `block`, innermost first; what an unroll pragma unrolls counts as unrolled.

    TVM unrolls below the pragma while the product of the extents stays within its limit.
    """
    shapes = []
    marked = False
    for i in reversed(block.chain):
        loop = nest.loops[i]
        marked = marked or loop.annotated
        shapes.append(LoopShape(loop.var, max(1, loop.extent), loop.kind, len(loop.blocks) == 1))
    if marked:
        limit = max(_pragma_limit(nest.loops[i].node) for i in block.chain)
        steps = 1
        for i, shape in enumerate(shapes):
            if shape.kind == VECTORIZED:
                continue
            steps *= shape.extent
            if steps > limit or shape.kind == PARALLEL:
                break
            shapes[i] = shape._replace(kind=UNROLLED)
    return shapes


def _pragma_limit(loop: Any) -> int:
    """The limit of the unroll pragma on a loop, 0 without one."""
    return int(loop.annotations.get("pragma_auto_unroll_max_step", 0))


def _speedup(nest: LoopNest, block: Block, target: Target) -> float:
    """How many threads share the iterations of `block`, with the last round's idle ones."""
    for i in block.chain:
        loop = nest.loops[i]
        if loop.kind == PARALLEL:
            extent = max(1, loop.extent)
            return extent / -(-extent // target.num_threads)
    return 1.0
