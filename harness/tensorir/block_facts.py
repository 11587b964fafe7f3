"""`BlockFacts` and `Placement`: what a block node, alone and with its bindings, says.

TVM shares both nodes between schedule copies as long as a block is not touched, and where it makes a
new one with the same content it shares what is inside. So a program takes over from the one that it
was made from what it shares with that. What modules find out about a content is kept in slots of one
record: no look-up, and nothing to visit for Python's garbage collector once the programs are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm.tirx import IntImm

from tirgym.harness.tensorir.linear import Linear, linear
from tirgym.harness.tensorir.node_cache import NodeCache, array_size, items, map_size

__all__ = ["Access", "BlockFacts", "Buffer", "Placement", "placement"]


class Buffer(NamedTuple):
    """A buffer as seen by accesses."""

    handle: int
    node: Any
    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    nbytes: int


class Access(NamedTuple):
    """One read or write region of a block."""

    buffer: Buffer
    region: tuple[tuple[Linear, int], ...]
    """for each dimension: start as a linear form of the block's iterators, extent (-1: not constant)"""
    strides: dict[int, float]
    """elements of the buffer that one step of an iterator (by handle) moves the access"""


@dataclass(slots=True, eq=False)
class BlockNotes:
    """What was found out about blocks of one content, by whom: None until then."""

    content: tuple[Any, ...]
    """handles of what is inside, the same for all blocks of the content"""
    view: Any = None
    """`block_view`"""
    form: Any = None
    """`shortcuts`"""
    plan: Any = None
    """`static_accesses`"""
    shown: Any = None
    """the encoder of graphs"""


@dataclass(slots=True, eq=False)
class BlockFacts:
    """What depends on a block node alone."""

    node: Any
    handle: int
    name: str
    iter_handles: tuple[int, ...]
    iter_types: tuple[int, ...]
    iter_extents: tuple[int, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    has_init: bool
    annotated: bool
    notes: BlockNotes
    """shared by all blocks of the same content"""


@dataclass(slots=True, eq=False)
class PlacementNotes:
    """What was found out about blocks of one content with their bindings: None until then."""

    content: tuple[Any, ...]
    view: Any = None
    """`block_view`"""
    cost: Any = None
    """`static_block_cost`"""
    shown: Any = None
    """the encoder of graphs"""


@dataclass(slots=True, eq=False)
class Placement:
    """A block with its bindings: what depends on an `SBlockRealize` alone."""

    realize: Any
    handle: int
    facts: BlockFacts
    bindings: tuple[Linear, ...]
    """value of each iterator as a linear form of loop variables"""
    has_predicate: bool
    notes: PlacementNotes
    """shared by all blocks of the same content and bindings"""


_BUFFERS = NodeCache()


def _buffer(node: Any) -> Buffer:
    hit = _BUFFERS.entries.get(hash(node))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    shape = tuple([s.value if type(s) is IntImm else -1 for s in items(node.shape)])
    size = 1
    for extent in shape:
        size *= extent
    dtype = str(node.dtype)
    bits = int("".join(filter(str.isdigit, dtype)) or 8)
    scope = str(node.scope())
    made = Buffer(hash(node), node, str(node.name), shape, dtype, scope, size * bits // 8)
    return _BUFFERS.put(node, made)  # type: ignore[no-any-return]


def _access(region: Any) -> Access:
    """One region."""
    buffer = _buffer(region.source)
    found = []
    for part in items(region.region):
        extent = part.extent
        found.append((linear(part.min), extent.value if type(extent) is IntImm else -1))
    ranges = tuple(found)
    strides: dict[int, float] = {}
    step = 1
    for (start, _), size in zip(reversed(ranges), reversed(buffer.shape), strict=True):
        for handle, coefficient in start.coefficients.items():
            strides[handle] = strides.get(handle, 0.0) + coefficient * step
        step *= size
    return Access(buffer, ranges, strides)


def _iterators(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Handles, types and extents of the iterators of a block."""
    iters = items(array)
    return (
        tuple([hash(iv.var) for iv in iters]),
        tuple([int(iv.iter_type) for iv in iters]),
        tuple([int(iv.dom.extent) for iv in iters]),
    )


_REGIONS = 8
"""Place of the first region in the content of a block."""


def _block_facts(node: Any, before: Sequence[Placement]) -> BlockFacts:
    """What depends on the block node alone; `before` holds blocks that it may share with."""
    handle = hash(node)
    for place in before:
        if place.facts.handle == handle:
            return place.facts
    reads, writes, init = items(node.reads), items(node.writes), node.init
    iterators, annotations, matched = node.iter_vars, node.annotations, node.match_buffers
    annotated, name = map_size(annotations) > 0, str(node.name_hint)
    content = (
        name,
        iterators.__chandle__(),  # its hash would be that of its elements
        hash(node.body),
        0 if init is None else hash(init),
        annotations.__chandle__() if annotated else 0,
        node.alloc_buffers.__chandle__(),
        matched.__chandle__() if array_size(matched) else 0,
        len(reads),
        *map(hash, reads),
        *map(hash, writes),
    )
    like: BlockFacts | None = None
    for place in before:
        old = place.facts
        if old.name == name:
            like = old
            if old.notes.content == content:
                return BlockFacts(
                    node,
                    handle,
                    name,
                    old.iter_handles,
                    old.iter_types,
                    old.iter_extents,
                    old.reads,
                    old.writes,
                    old.has_init,
                    old.annotated,
                    old.notes,
                )
    regions: dict[int, Access] = {}
    if like is not None:
        handles = like.notes.content[_REGIONS:]
        regions.update(zip(handles, (*like.reads, *like.writes), strict=True))
    if like is not None and like.notes.content[1] == content[1]:
        known = like.iter_handles, like.iter_types, like.iter_extents
    else:
        known = _iterators(iterators)
    return BlockFacts(
        node,
        handle,
        name,
        *known,
        tuple([regions.get(hash(region)) or _access(region) for region in reads]),
        tuple([regions.get(hash(region)) or _access(region) for region in writes]),
        init is not None,
        annotated,
        BlockNotes(content),
    )


def placement(realize: Any, before: Sequence[Placement] = ()) -> Placement:
    """A block with its bindings; `before` holds blocks that it may share with."""
    handle = hash(realize)
    for place in before:
        if place.handle == handle:
            return place
    facts = _block_facts(realize.block, before)
    values, predicate = realize.iter_values, realize.predicate
    content = (id(facts.notes), values.__chandle__(), hash(predicate))
    for place in before:
        if place.notes.content == content:
            guarded, bindings = place.has_predicate, place.bindings
            return Placement(realize, handle, facts, bindings, guarded, place.notes)
    bindings = tuple([linear(value) for value in items(values)])
    guarded = type(predicate) is not IntImm
    return Placement(realize, handle, facts, bindings, guarded, PlacementNotes(content))
