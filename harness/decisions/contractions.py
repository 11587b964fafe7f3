"""Contractions: reductions that read each of several operands again and again.

They are bound by arithmetic rather than memory, so their tiles are chosen for the vector unit.
"""

from __future__ import annotations

from typing import NamedTuple

from tirgym.harness.decisions.nests import own_loops, reduces
from tirgym.harness.static_accesses import exact_accesses
from tirgym.harness.tensorir.nest import Access, Block
from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = [
    "Along",
    "SpatialAxis",
    "along",
    "is_contraction",
    "operands",
    "row_axes",
    "spatial_axes",
]


class Along(NamedTuple):
    """How an access moves with an iterator."""

    free: bool
    """not at all"""
    contiguous: bool
    """by one element"""
    swap: int = -1
    """the dimension that would have to be the last, -1 if no swap helps"""


class SpatialAxis(NamedTuple):
    """A loop of a block's own that is one of its spatial iterators."""

    number: int
    """among the block's own loops"""
    iterator: int
    """among the block's iterators"""
    handle: int
    extent: int
    name: str


def along(access: Access, handle: int) -> Along:
    """How `access` moves with the iterator of that handle."""
    dims = [d for d, (start, _) in enumerate(access.region) if start.coefficients.get(handle)]
    if not dims:
        return Along(True, False)
    start, extent = access.region[dims[0]]
    if len(dims) > 1 or not start.exact or extent != 1 or start.coefficients[handle] != 1.0:
        return Along(False, False)
    last = dims[0] == len(access.region) - 1
    return Along(False, last, -1 if last else dims[0])


def operands(block: Block) -> list[tuple[int, Access]]:
    """What a block loads, other than what it writes, each with the number of its read region."""
    written = {write.buffer.handle for write in block.facts.writes}
    return [
        (number, load)
        for number, read in enumerate(block.facts.reads)
        if read.buffer.handle not in written
        for load in exact_accesses(read, block.facts.node)
    ]


def spatial_axes(program: TensorIRProgram, block: Block) -> list[SpatialAxis]:
    """The block's own loops over one spatial iterator each, outermost first."""
    facts, found = block.facts, []
    for number, index in enumerate(own_loops(program.nest, block)):
        loop = program.nest.loops[index]
        for iterator, binding in enumerate(block.bindings):
            plain = binding.exact and binding.coefficients == {loop.var: 1.0}
            if plain and not reduces(program, block, index):
                handle, name = facts.iter_handles[iterator], loop.node.loop_var.name
                found.append(SpatialAxis(number, iterator, handle, loop.extent, name))
    return found


def row_axes(block: Block, axes: list[SpatialAxis], lane: SpatialAxis) -> list[SpatialAxis]:
    """The axes along which a vector of operands, loaded along `lane`, is used again; innermost first.

    All others where there is none.
    """
    others = [axis for axis in reversed(axes) if axis.number != lane.number]
    loaded = [read for _, read in operands(block) if not along(read, lane.handle).free]
    rows = [a for a in others if all(along(read, a.handle).free for read in loaded)]
    return rows or others


def is_contraction(program: TensorIRProgram, block: Block) -> bool:
    """Whether a block reduces, and reads each of several operands again along some spatial loop."""
    loads = [load for _, load in operands(block) if load.strides]
    if not block.facts.has_init or len(loads) < 2:
        return False
    handles = [axis.handle for axis in spatial_axes(program, block) if axis.extent > 1]
    return all(any(along(load, handle).free for handle in handles) for load in loads)
