"""Intermediate buffers that belong to one iteration of the loops around, and shrink to what it needs.

TVM allocates an intermediate buffer inside the innermost loop that holds all blocks which access it,
and leaves it the region that one iteration touches (its passes PlanAndUpdateBufferAllocationLocation
and CompactBufferAllocation). So a row of an intermediate matrix that is made and used within one
iteration stays in the first cache, and the lanes of partial sums are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tirgym.harness.static_accesses import BoundAccess
from tirgym.harness.tensorir.nest import LoopNest, items

__all__ = ["Private", "compacted", "private_buffers"]


class Private(NamedTuple):
    """A buffer of which each iteration of some loops has its own part."""

    depth: int
    """loops around all blocks that access it"""
    shape: tuple[int, ...]
    """of the part"""


def _depths(nest: LoopNest) -> dict[int, int]:
    """By handle of an intermediate buffer: loops around all blocks that access it, if there are any."""
    common: dict[int, tuple[int, ...]] = {}
    for block in nest.blocks:
        for access in (*block.facts.reads, *block.facts.writes):
            buffer, chain = access.buffer.handle, block.chain
            before = common.get(buffer)
            if before is not None and before != chain:
                depth = 0
                for one, other in zip(before, chain, strict=False):
                    if one != other:
                        break
                    depth += 1
                chain = chain[:depth]
            common[buffer] = chain
    own = {hash(buffer) for buffer in items(nest.root.alloc_buffers)}
    return {buffer: len(chain) for buffer, chain in common.items() if chain and buffer in own}


def private_buffers(
    nest: LoopNest, accesses: Mapping[int, tuple[BoundAccess, ...]]
) -> dict[int, Private]:
    """The private buffers of `nest` by handle.

    `accesses` by block number; a block that accesses no intermediate buffer may be missing.
    """
    depths = _depths(nest)
    shapes: dict[int, list[int]] = {}
    for block in nest.blocks if depths else ():
        for access in accesses.get(block.index, ()):
            depth = depths.get(access.buffer, 0)
            if not depth:
                continue
            spans = [float(extent) for extent, _ in access.dims]
            for i in block.chain[depth:]:
                loop = nest.loops[i]
                for d, step in access.moves.get(loop.var, ()):
                    spans[d] += step * (max(1, loop.extent) - 1)
            found = shapes.setdefault(access.buffer, [1] * len(spans))
            for d, (span, (_, size)) in enumerate(zip(spans, access.dims, strict=True)):
                found[d] = max(found[d], min(size, int(span)))
    return {buffer: Private(depths[buffer], tuple(shape)) for buffer, shape in shapes.items()}


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
