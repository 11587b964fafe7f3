"""Rules that keep the meaning of loop transforms; see `rules.py` for the classes of holes."""

from __future__ import annotations

from typing import Any

from tirgym.harness.tensorir.facts import Facts, LoopFacts, bits, span
from tirgym.harness.tensorir.nest import REDUCE, SPATIAL, Placement

__all__ = [
    "colliding_lanes",
    "decomposes_recomputation",
    "disjoint",
    "injective",
    "ordered",
    "recomputed_reorder",
    "rfactor_repeats",
    "rfactor_sibling",
    "shared_writes",
    "tangled_reorder",
    "vectors_of_vectors",
]


def ordered(facts: LoopFacts, t: Any, asked: int) -> int:
    """Reorder above a block whose result depends on the order of its iterations."""
    refused = 0
    for i, view in enumerate(facts.views):
        if view.ordered:
            refused |= facts.chain[i]
    return refused


def recomputed_reorder(facts: LoopFacts, t: Any, asked: int) -> int:
    """Reorder of a reduction loop of a block that runs more often than it has instances.

    With the recomputing loop inside the reduction loop, an initialisation falls between terms, or
    terms are added twice. Two loops that both only reduce may be swapped.
    """
    refused = 0
    for i, reduced in enumerate(facts.reduced):
        if not reduced or facts.once[i]:
            continue
        place, exact = facts.placed[i], 0
        for kind, binding in zip(place.facts.iter_types, place.bindings, strict=True):
            if kind == REDUCE and binding.exact:
                for var in binding.coefficients:
                    exact |= facts.bit.get(var, 0)
        either = reduced | reduced >> 1
        both = exact & exact >> 1
        refused |= either & ~both & (facts.chain[i] & facts.chain[i] >> 1)
    return refused


def tangled_reorder(facts: LoopFacts, t: Any, asked: int) -> int:
    """Reorder of two loops that share a reduction iterator by division (H).

    The initialisation runs where the iterator is zero, which is then not the first term any more.
    """
    refused = 0
    for i, view in enumerate(facts.views):
        if view.tangled and facts.placed[i].facts.has_init:
            loops = 0
            for var in view.tangled:
                loops |= facts.bit.get(var, 0)
            refused |= loops & loops >> 1
    return refused


def colliding_lanes(facts: LoopFacts, t: Any, asked: int) -> int:
    """Vectorize of a loop whose iterations do not write different elements."""
    refused = 0
    for i in bits(facts.over_block & asked):
        variable, block = facts.variables[i], facts.firsts[i]
        view = facts.views[block]
        distinct = variable in view.lane_vars or (
            facts.once[block] and variable in view.spatial_vars
        )
        if not distinct or variable in view.reduce_vars or view.ordered:
            refused |= 1 << i
    return refused


def vectors_of_vectors(facts: LoopFacts, t: Any, asked: int) -> int:
    """Vectorize of a loop around an intrinsic, which works on vectors already."""
    refused = 0
    for i in bits(facts.over_block & asked):
        if facts.views[facts.firsts[i]].intrinsic:
            refused |= 1 << i
    return refused


def _private(facts: Facts, buffer: int, loop: int) -> bool:
    """Whether every access of an intermediate buffer lies below `loop`."""
    if buffer not in facts.intermediates:
        return False
    accessors = facts.writers.get(buffer, ()) + facts.readers.get(buffer, ())
    return all(facts.inside(b, loop) for b in accessors)


def disjoint(facts: Facts, block: int, loop: int) -> bool:
    """Whether iterations of `loop` write different elements."""
    view, this = facts.views[block], facts.variables[loop]
    if this in view.reduce_vars:
        return False
    if facts.once[block]:
        return this in view.spatial_vars
    if this not in view.lane_vars:
        return False
    inner = {facts.variables[i]: facts.extents[i] for i in facts.blocks[block].chain if i != loop}
    for kind, binding in zip(
        facts.blocks[block].facts.iter_types, facts.blocks[block].bindings, strict=True
    ):
        step = abs(binding.coefficients.get(this, 0.0))
        if kind == SPATIAL and step and this not in binding.fuzzy:
            return not binding.fuzzy and step >= span(binding, inner)
    return False


def shared_writes(facts: Facts, t: Any, asked: int) -> int:
    """Parallel of a loop below which a block writes a shared element in several iterations."""
    refused = 0
    for loop in facts.loops:
        for block in loop.blocks:
            view = facts.views[block]
            if view.ordered or (
                not disjoint(facts, block, loop.index)
                and not all(_private(facts, w, loop.index) for w in view.writes)
            ):
                refused |= 1 << loop.index
                break
    return refused


def injective(facts: LoopFacts, place: Placement, loops: int) -> bool:
    """Whether the iterations of `loops` alone give different iterator values to the block."""
    extents = {facts.variables[i]: facts.extents[i] for i in bits(loops)}
    free = {var for var, extent in extents.items() if extent > 1}
    for binding in place.bindings:
        terms = sorted(
            (c, extents[v]) for v, c in binding.coefficients.items() if extents.get(v, 1) > 1
        )
        if not terms:
            continue
        if not binding.fuzzy.isdisjoint(free):
            return False
        reach = 0.0
        for coefficient, extent in terms:
            if coefficient <= reach:
                return False
            reach += coefficient * (extent - 1)
        free.difference_update(binding.coefficients)
    return not free


def decomposes_recomputation(facts: LoopFacts, t: Any, asked: int) -> int:
    """DecomposeReduction (E): the loop or one below it repeats the sum of the first block."""
    refused = 0
    if False not in facts.once:
        return 0
    for i in bits(asked & facts.all_loops):
        block = facts.first_init[i]
        if block < 0 or facts.once[block]:
            continue
        inner = facts.chain[block] & facts.below[i]
        here = facts.placed[block]
        if here.has_predicate or not injective(facts, here, inner):
            refused |= 1 << i
    return refused


def rfactor_repeats(facts: LoopFacts, t: Any, asked: int) -> int:
    """RFactor of a reduction that runs more often than it has instances, or is marked."""
    refused = 0
    marked = facts.vectorized | facts.parallel
    for once, chain in zip(facts.once, facts.chain, strict=True):
        if not once or chain & marked:
            refused |= chain & facts.single
    return refused


def rfactor_sibling(facts: LoopFacts, t: Any, asked: int) -> int:
    """RFactor next to a block that sits directly in a loop above, or in none: the compiler breaks
    down."""
    refused = 0
    for block, chain in enumerate(facts.chain):
        if chain & asked & facts.single & ~refused:
            for c, other in enumerate(facts.chain):
                if c != block and not other & ~chain:
                    refused |= chain & facts.single
                    break
    return refused
