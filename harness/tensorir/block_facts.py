"""`BlockFacts` and `Placement`: what a block node, alone and with its bindings, says.

TVM shares both nodes between schedule copies as long as a block is not touched, and where it makes a
new one with the same content it shares what is inside. What modules find out about a content is kept
in slots of one record: no look-up, and few containers for the garbage collector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm.tirx import IntImm

from tirgym.harness.tensorir.linear import Linear, binding_key, linear
from tirgym.harness.tensorir.node_cache import NodeCache, array_size, items, map_size

__all__ = ["Access", "BlockFacts", "Buffer", "Placement", "block_facts", "placement"]


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

    view: Any = None
    """`block_view`"""
    shown: Any = None
    """the encoder of graphs"""


@dataclass(slots=True, eq=False)
class Placement:
    """A block with its bindings: what depends on an `SBlockRealize` alone."""

    realize: Any
    facts: BlockFacts
    bindings: tuple[Linear, ...]
    """value of each iterator as a linear form of loop variables"""
    has_predicate: bool
    terms: tuple[Any, ...]
    """what of `bindings` matters, constants apart, as a key of plain tuples"""
    notes: PlacementNotes
    """shared by all blocks of the same content and bindings"""


_FACTS = NodeCache(1 << 11)
_BUFFERS = NodeCache(1 << 10)
_ACCESSES = NodeCache(1 << 12)
_ITERS = NodeCache(1 << 11)
_PLACED = NodeCache(1 << 11)
_SAME_FACTS = NodeCache(1 << 11)
_SAME_PLACED = NodeCache(1 << 11)


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
    """One region, cached by node: TVM shares those of one buffer when it replaces another."""
    hit = _ACCESSES.entries.get(hash(region))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
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
    return _ACCESSES.put(region, Access(buffer, ranges, strides))  # type: ignore[no-any-return]


def _iterators(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Handles, types and extents of the iterators of a block; cached by array."""
    handle = array.__chandle__()  # its hash would be that of its elements
    hit = _ITERS.entries.get(handle)
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    iters = items(array)
    made = (
        tuple([hash(iv.var) for iv in iters]),
        tuple([int(iv.iter_type) for iv in iters]),
        tuple([int(iv.dom.extent) for iv in iters]),
    )
    return _ITERS.put_at(handle, array, made)  # type: ignore[no-any-return]


def block_facts(node: Any) -> BlockFacts:
    """What depends on the block node alone; cached by node."""
    hit = _FACTS.entries.get(hash(node))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    iterators, reads, writes, init = (
        node.iter_vars,
        items(node.reads),
        items(node.writes),
        node.init,
    )
    annotations, matched, name = node.annotations, node.match_buffers, str(node.name_hint)
    annotated = map_size(annotations) > 0
    content = (
        name,
        iterators.__chandle__(),
        hash(node.body),
        0 if init is None else hash(init),
        annotations.__chandle__() if annotated else 0,
        node.alloc_buffers.__chandle__(),
        matched.__chandle__() if array_size(matched) else 0,
        len(reads),
        *map(hash, reads),
        *map(hash, writes),
    )
    same = _SAME_FACTS.entries.get(content)
    if same is None:
        made = BlockFacts(
            node,
            name,
            *_iterators(iterators),
            tuple([_access(r) for r in reads]),
            tuple([_access(r) for r in writes]),
            init is not None,
            annotated,
            BlockNotes(),
        )
        _SAME_FACTS.put_at(content, node, made)
    else:
        made = BlockFacts(
            node,
            name,
            same.iter_handles,
            same.iter_types,
            same.iter_extents,
            same.reads,
            same.writes,
            same.has_init,
            same.annotated,
            same.notes,
        )
    return _FACTS.put(node, made)  # type: ignore[no-any-return]


def placement(realize: Any) -> Placement:
    """A block with its bindings; cached by node."""
    hit = _PLACED.entries.get(hash(realize))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    facts, values, predicate = block_facts(realize.block), realize.iter_values, realize.predicate
    content = (id(facts.notes), values.__chandle__(), hash(predicate))
    same = _SAME_PLACED.entries.get(content)
    if same is None:
        bindings = tuple([linear(value) for value in items(values)])
        guarded = type(predicate) is not IntImm
        terms = tuple([binding_key(binding) for binding in bindings])
        made = Placement(realize, facts, bindings, guarded, terms, PlacementNotes())
        _SAME_PLACED.put_at(content, realize, made)
    else:
        guarded = same.has_predicate
        made = Placement(realize, facts, same.bindings, guarded, same.terms, same.notes)
    return _PLACED.put(realize, made)  # type: ignore[no-any-return]
