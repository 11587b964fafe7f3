"""`BlockCost`: what one block of a loop nest costs."""

from __future__ import annotations

from typing import NamedTuple

from tirgym.harness.static_accesses import AccessPlan, BoundAccess, access_plan, bound_accesses
from tirgym.harness.static_footprint import Touched, footprints
from tirgym.harness.static_issue import BlockIssue, CoreModel, LoopShape, issue_cycles
from tirgym.harness.static_private import Private, compacted
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    UNROLLED,
    VECTORIZED,
    Linear,
    NestPart,
    Placement,
)

__all__ = ["Around", "BlockCost", "around_blocks", "block_cost"]

Around = tuple[tuple[int, int, int, bool], ...]
"""The fields of a `LoopShape` for each loop around a block, innermost first."""
Privates = tuple[tuple[int, Private], ...]


class BlockCost(NamedTuple):
    """One block: its issue cycles, and what it touches at each loop level."""

    cycles: float
    """issue cycles of all threads"""
    busiest: float
    """issue cycles of the busiest thread"""
    registers: float
    """vector registers that hold reused values"""
    touched: Touched
    plan: AccessPlan
    predicated: bool
    around: Around
    bindings: tuple[Linear, ...]
    private: Privates
    core: CoreModel

    @property
    def loops(self) -> tuple[LoopShape, ...]:
        """Innermost first."""
        return tuple([LoopShape(*shape) for shape in self.around])

    @property
    def accesses(self) -> tuple[BoundAccess, ...]:
        """Reads, then writes; found again, since they take much memory."""
        return _accesses(self.plan, self.bindings, self.around, self.private)

    @property
    def issue(self) -> BlockIssue:
        """What `cycles` is made of; found again."""
        plan = self.plan
        return issue_cycles(
            list(self.loops), self.accesses, plan.ops, plan.has_init, self.predicated, self.core
        )


def _accesses(
    plan: AccessPlan, bindings: tuple[Linear, ...], around: Around, private: Privates
) -> tuple[BoundAccess, ...]:
    accesses = bound_accesses(plan, bindings)
    if not private:
        return accesses
    return compacted(accesses, tuple([shape[0] for shape in around[::-1]]), dict(private))


def block_cost(
    place: Placement, around: Around, private: Privates, core: CoreModel, target: Target
) -> BlockCost:
    """The cost of a block in the loops `around`; `core` is that of `target`. The last one is kept."""
    key = (around, private, target.arch, target.num_threads)
    kept = place.notes.cost
    if kept is not None and kept[0] == key:
        return kept[1]  # type: ignore[no-any-return]
    plan = access_plan(place.facts)
    shapes = [LoopShape(*shape) for shape in around]
    accesses = _accesses(plan, place.bindings, around, private)
    issue = issue_cycles(shapes, accesses, plan.ops, plan.has_init, place.has_predicate, core)
    made = BlockCost(
        cycles=issue.cycles,
        busiest=issue.cycles / _speedup(around, target.num_threads),
        registers=issue.registers,
        touched=footprints(accesses, [(shape[0], shape[1]) for shape in around]),
        plan=plan,
        predicated=place.has_predicate,
        around=around,
        bindings=place.bindings,
        private=private,
        core=core,
    )
    place.notes.cost = key, made
    return made


def around_blocks(part: NestPart) -> list[Around]:
    """For each block of a part the loops around it."""
    shape = part.shape
    loops = [
        (variable, max(1, extent), kind, stop - first == 1)
        for variable, extent, kind, first, stop in zip(
            part.variables, part.extents, shape.kinds, shape.firsts, shape.stops, strict=True
        )
    ]
    found = []
    for chain in shape.block_chains:
        around = tuple([loops[i] for i in chain[::-1]])
        limit = max([part.unroll_limits[i] for i in chain], default=0)
        found.append(_unrolled(around, limit) if limit else around)
    return found


def _unrolled(around: Around, limit: int) -> Around:
    """The loops `around` a block; what a pragma unrolls is UNROLLED.

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


def _speedup(around: Around, threads: int) -> float:
    """How many threads share the iterations of a block, with the last round's idle ones."""
    for _, extent, kind, _ in reversed(around):
        if kind == PARALLEL:
            return extent / -(-extent // threads)
    return 1.0
