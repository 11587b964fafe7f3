"""`BlockFacts` and `Placement`: what a block node, alone and with its bindings, says.

TVM shares both nodes between schedule copies as long as a block is not touched. So each gets one
record, made once, and what other modules find out about it is kept in slots of that record: no
look-up, and few containers for the garbage collector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tvm.tirx import IntImm

from tirgym.harness.tensorir.linear import Linear, linear
from tirgym.harness.tensorir.node_cache import NodeCache, items

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
    view: Any = field(default=None, init=False)
    """filled by `block_view`"""
    form: Any = field(default=None, init=False)
    """filled by `shortcuts`"""
    plan: Any = field(default=None, init=False)
    """filled by `static_accesses`"""
    shown: Any = field(default=None, init=False)
    """filled by the encoder of graphs"""


@dataclass(slots=True, eq=False)
class Placement:
    """A block with its bindings: what depends on an `SBlockRealize` alone."""

    realize: Any
    facts: BlockFacts
    bindings: tuple[Linear, ...]
    """value of each iterator as a linear form of loop variables"""
    has_predicate: bool
    view: Any = field(default=None, init=False)
    """filled by `block_view`"""
    shown: Any = field(default=None, init=False)
    """filled by the encoder of graphs"""


_FACTS = NodeCache(1 << 11)
_BUFFERS = NodeCache(1 << 10)
_ACCESSES = NodeCache(1 << 12)
_ITERS = NodeCache(1 << 11)
_PLACED = NodeCache(1 << 11)


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
    """What depends on the block node alone; one record for each node."""
    hit = _FACTS.entries.get(hash(node))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    handles, types, extents = _iterators(node.iter_vars)
    made = BlockFacts(
        node=node,
        name=str(node.name_hint),
        iter_handles=handles,
        iter_types=types,
        iter_extents=extents,
        reads=tuple([_access(r) for r in items(node.reads)]),
        writes=tuple([_access(r) for r in items(node.writes)]),
        has_init=node.init is not None,
        annotated=len(node.annotations) > 0,
    )
    return _FACTS.put(node, made)  # type: ignore[no-any-return]


def placement(realize: Any) -> Placement:
    """A block with its bindings; one record for each `SBlockRealize`."""
    hit = _PLACED.entries.get(hash(realize))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    made = Placement(
        realize,
        block_facts(realize.block),
        tuple([linear(value) for value in items(realize.iter_values)]),
        type(realize.predicate) is not IntImm,
    )
    return _PLACED.put(realize, made)  # type: ignore[no-any-return]
