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
from tirgym.harness.hardware import auto_vector_bits, vector_unit
from tirgym.harness.program import Program
from tirgym.harness.static_accesses import (
    AccessPlan,
    BoundAccess,
    access_plan,
    binding_key,
    bound_accesses,
)
from tirgym.harness.static_footprint import (
    LINE,
    LINES,
    PAGES,
    LoopTree,
    Prices,
    Touched,
    footprints,
)
from tirgym.harness.static_issue import BlockIssue, CoreModel, LoopShape, issue_cycles
from tirgym.harness.static_private import Private, compacted, private_buffers
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
        vector_bytes=bits // 8,
        auto_vector_bytes=auto_vector_bits(target.arch) // 8,
        registers=registers,
    )
    return MachineModel(core)


class BlockCost(NamedTuple):
    """One block: its issue cycles, and what it touches at each loop level."""

    cycles: float
    """issue cycles of all threads"""
    busiest: float
    """issue cycles of the busiest thread"""
    registers: float
    """vector registers that hold reused values"""
    touched: Touched
    issue: BlockIssue
    """what `cycles` is made of"""
    plan: AccessPlan
    predicated: bool
    loops: tuple[LoopShape, ...]
    """innermost first"""
    accesses: tuple[BoundAccess, ...]
    """reads, then writes"""


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
        self._alike: dict[Any, tuple[AccessPlan, BlockCost]] = {}
        self._bound: dict[int, tuple[Any, tuple[BoundAccess, ...]]] = {}
        self._target: Target | None = None

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""
        return self.parts(program).total_us

    def parts(self, program: Program) -> CostParts:
        """The prediction with what it is made of."""
        return self.analysis(program)[0]

    def analysis(self, program: Program) -> tuple[CostParts, list[BlockCost]]:
        """The prediction with what it is made of, and each block's part in order."""
        if not isinstance(program, TensorIRProgram):
            raise InvalidValueError("dialect of the static cost model", program.dialect, "tensorir")
        nest = program.nest
        model = machine_model(program.target)
        if program.target != self._target:
            self._target = program.target
            self._costs.clear()
            self._alike.clear()
        costs = self._block_costs(nest, model, program.target)
        serial = sum([cost.cycles for cost in costs])
        issue = sum([cost.busiest for cost in costs])
        tree = LoopTree(nest, [cost.touched for cost in costs])
        l1, from_l2 = tree.traffic((0, LINES, model.l1_lines, model.from_l2))
        l2, from_l3 = l3, from_dram = 0.0, 0.0
        if l1:
            l2, from_l3 = tree.traffic((1, LINES, model.l2_lines, model.from_l3))
        if l2:
            l3, from_dram = tree.traffic((2, LINES, model.l3_lines, model.from_dram))
        _, look_ups = tree.traffic((3, PAGES, model.tlb_pages, model.look_up))
        memory = from_l2 + from_l3 + from_dram + look_ups
        memory *= issue / serial if serial else 1.0
        cycles = max(issue, memory) + model.overlap * min(issue, memory)
        launches = sum([loop.kind == PARALLEL for loop in nest.loops])
        total = cycles / (model.ghz * 1e3) + model.call_us + launches * model.parallel_us
        held = max([cost.registers for cost in costs], default=0.0)
        return CostParts(issue, memory, l1, l2, l3, held, total), costs

    def _block_costs(self, nest: LoopNest, model: MachineModel, target: Target) -> list[BlockCost]:
        """The cost of each block; cached by block realization and the loops around it."""
        loops = nest.loops
        shapes = [
            (loop.var, max(1, loop.extent), loop.kind, len(loop.blocks) == 1) for loop in loops
        ]
        limits = {loop.index: _pragma_limit(loop.node) for loop in loops if loop.annotated}
        private = self._private(nest)
        costs = []
        for block in nest.blocks:
            chain = block.chain
            around = tuple([shapes[i] for i in chain[::-1]])
            if limits:
                limit = max([limits.get(i, 0) for i in chain], default=0)
                around = _unrolled(around, limit) if limit else around
            realize = block.placement.realize
            own = tuple([(b, private[b]) for b in _buffers(block) if b in private])
            key = (hash(realize), around, own)
            hit = self._costs.get(key)
            if hit is None:
                if len(self._costs) >= self._limit:
                    self._costs.clear()
                # the node stays alive, so its handle stays its own
                made = self._block_cost(block, around, own, model, target)
                hit = self._costs[key] = realize, made
            costs.append(hit[1])
        return costs

    def _private(self, nest: LoopNest) -> dict[int, Private]:
        """Intermediate buffers that belong to one iteration of the loops around."""
        return private_buffers(nest, {b.index: self._accesses(b) for b in nest.blocks})

    def _accesses(self, block: Block) -> tuple[BoundAccess, ...]:
        """Those of a block in terms of the loops around it; cached like its cost."""
        realize = block.realize
        hit = self._bound.get(hash(realize))
        if hit is None:
            if len(self._bound) >= self._limit:
                self._bound.clear()
            made = bound_accesses(access_plan(block.facts), block.bindings)
            hit = self._bound[hash(realize)] = realize, made
        return hit[1]

    def _block_cost(
        self,
        block: Block,
        around: tuple[_Shape, ...],
        private: tuple[tuple[int, Private], ...],
        model: MachineModel,
        target: Target,
    ) -> BlockCost:
        """The parts that depend on one block and the loops around it.

        Shared between blocks that do the same, since TVM makes new nodes for many that stay as they
        were.
        """
        plan = access_plan(block.facts)
        key = (id(plan), block.has_predicate, around, private, *map(binding_key, block.bindings))
        hit = self._alike.get(key)
        if hit is not None:
            return hit[1]
        shapes = [LoopShape(*shape) for shape in around]
        accesses = self._accesses(block)
        if private:
            accesses = compacted(accesses, tuple([s[0] for s in around[::-1]]), dict(private))
        issue = issue_cycles(
            shapes, accesses, plan.ops, plan.has_init, block.has_predicate, model.core
        )
        touched = footprints(accesses, [(shape[0], shape[1]) for shape in around])
        made = BlockCost(
            cycles=issue.cycles,
            busiest=issue.cycles / _speedup(around, target),
            registers=issue.registers,
            touched=touched,
            issue=issue,
            plan=plan,
            predicated=block.has_predicate,
            loops=tuple(shapes),
            accesses=accesses,
        )
        if len(self._alike) >= self._limit:
            self._alike.clear()
        self._alike[key] = plan, made  # the plan stays alive, so its identity stays its own
        return made


_Shape = tuple[int, int, int, bool]
"""The fields of a `LoopShape`."""


def _buffers(block: Block) -> list[int]:
    """Handles of the buffers that a block accesses, each once."""
    facts = block.facts
    return list(dict.fromkeys([a.buffer.handle for a in (*facts.reads, *facts.writes)]))


def _unrolled(around: tuple[_Shape, ...], limit: int) -> tuple[_Shape, ...]:
    """The loops `around` a block, innermost first; what a pragma unrolls is UNROLLED.

    TVM unrolls below the pragma while the product of the extents stays within its `limit`.
    """
    shapes = list(around)
    steps = 1
    for i, (variable, extent, kind, alone) in enumerate(around):
        if kind == VECTORIZED:
            continue
        steps *= extent
        if steps > limit or kind == PARALLEL:
            break
        shapes[i] = variable, extent, UNROLLED, alone
    return tuple(shapes)


def _pragma_limit(loop: Any) -> int:
    """The limit of the unroll pragma on a loop, 0 without one."""
    return int(loop.annotations.get("pragma_auto_unroll_max_step", 0))


def _speedup(around: tuple[_Shape, ...], target: Target) -> float:
    """How many threads share the iterations of a block, with the last round's idle ones."""
    for _, extent, kind, _ in reversed(around):
        if kind == PARALLEL:
            return extent / -(-extent // target.num_threads)
    return 1.0
