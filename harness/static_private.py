"""Intermediate buffers that belong to one iteration of the loops around, and shrink to what it needs.

TVM allocates an intermediate buffer inside the innermost loop that holds all blocks which access it,
and leaves it the region that one iteration touches (its passes PlanAndUpdateBufferAllocationLocation
and CompactBufferAllocation). So a row of an intermediate matrix that is made and used within one
iteration stays in the first cache, and the lanes of partial sums are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tirgym.harness.static_accesses import BoundAccess, access_plan, bound_accesses
from tirgym.harness.tensorir.block_view import block_view
from tirgym.harness.tensorir.nest import LoopNest, NestPart, Placement

__all__ = [
    "Private",
    "buffers_of",
    "compacted",
    "own_buffers",
    "private_buffers",
    "private_in_part",
]


class Private(NamedTuple):
    """A buffer of which each iteration of some loops has its own part."""

    depth: int
    """loops around all blocks that access it"""
    shape: tuple[int, ...]
    """of the part"""


def buffers_of(place: Placement) -> tuple[int, ...]:
    """Handles of the buffers that a block accesses, each once."""
    view = block_view(place)
    return tuple(dict.fromkeys(view.reads + view.writes))


def own_buffers(nest: LoopNest) -> list[tuple[int, ...]]:
    """For each part of `nest` the intermediate buffers that it alone accesses."""
    users: dict[int, int] = {}
    accessed = [_accessed(entry.part) for entry in nest.parts]
    for buffers in accessed:
        for buffer in buffers:
            users[buffer] = users.get(buffer, 0) + 1
    inner = nest.intermediates
    return [tuple([b for b in found if users[b] == 1 and b in inner]) for found in accessed]


def _accessed(part: NestPart) -> tuple[int, ...]:
    """Handles of the buffers that a part accesses, each once; kept with the part."""
    if part.buffers is None:
        part.buffers = tuple(
            dict.fromkeys([buffer for place in part.blocks for buffer in buffers_of(place)])
        )
    return part.buffers


def private_in_part(part: NestPart, own: Collection[int]) -> dict[int, Private]:
    """The private buffers of a part by handle; `own` are its `own_buffers`."""
    common: dict[int, tuple[int, ...]] = {}
    chains = part.shape.block_chains
    for place, chain in zip(part.blocks, chains, strict=True) if own else ():
        for buffer in buffers_of(place):
            if buffer in own:
                common[buffer] = _shared_start(common.get(buffer, chain), chain)
    depths = {buffer: len(chain) for buffer, chain in common.items() if chain}
    shapes: dict[int, list[int]] = {}
    for place, chain in zip(part.blocks, chains, strict=True) if depths else ():
        if depths.keys().isdisjoint(buffers_of(place)):
            continue
        for access in bound_accesses(access_plan(place.facts), place.bindings):
            depth = depths.get(access.buffer, 0)
            if not depth:
                continue
            spans = [float(extent) for extent, _ in access.dims]
            for i in chain[depth:]:
                for d, step in access.moves.get(part.variables[i], ()):
                    spans[d] += step * (max(1, part.extents[i]) - 1)
            found = shapes.setdefault(access.buffer, [1] * len(spans))
            for d, (span, (_, size)) in enumerate(zip(spans, access.dims, strict=True)):
                found[d] = max(found[d], min(size, int(span)))
    return {buffer: Private(depths[buffer], tuple(shape)) for buffer, shape in shapes.items()}


def _shared_start(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The outer loops that two chains share."""
    depth = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        depth += 1
    return one[:depth]


def private_buffers(nest: LoopNest) -> dict[int, Private]:
    """The private buffers of `nest` by handle."""
    found: dict[int, Private] = {}
    for entry, own in zip(nest.parts, own_buffers(nest), strict=True):
        found.update(private_in_part(entry.part, own))
    return found


def compacted(
    accesses: tuple[BoundAccess, ...], chain: tuple[int, ...], private: Mapping[int, Private]
) -> tuple[BoundAccess, ...]:
    """`accesses` of a block with private buffers in their own shape; `chain` holds the handles of the
    variables of the loops around, outermost first."""
    return tuple(
        [_compacted(a, chain, private[a.buffer]) if a.buffer in private else a for a in accesses]
    )


def _compacted(access: BoundAccess, chain: tuple[int, ...], private: Private) -> BoundAccess:
    outside = frozenset(chain[: private.depth])
    steps = [float(access.item)]
    for size in private.shape[:0:-1]:
        steps.append(steps[-1] * size)
    steps.reverse()
    moves = {loop: moved for loop, moved in access.moves.items() if loop not in outside}
    # strides have signs and moves have none: each is scaled by what became of its dimension
    strides = {}
    for loop, stride in access.strides.items():
        if loop in moves and len(moves[loop]) == 1:
            ((d, _),) = moves[loop]
            strides[loop] = stride * steps[d] / access.steps[d]
        elif loop not in outside:
            strides[loop] = stride
    dims = tuple(
        (min(extent, size), size)
        for (extent, _), size in zip(access.dims, private.shape, strict=True)
    )
    return access._replace(dims=dims, moves=moves, steps=tuple(steps), strides=strides)
