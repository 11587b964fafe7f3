"""`BlockView`: the part of the graph that a TensorIR block and its bindings decide alone."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tirgym.harness.tensorir.body_view import body_view
from tirgym.harness.tensorir.nest import (
    REDUCE,
    SPATIAL,
    BlockFacts,
    Buffer,
    Linear,
    Placement,
)
from tirgym.spaces.graph import BOUND, COLUMNS, EDGE_FEATURES, NODE_FEATURES, EdgeType, NodeType

__all__ = ["BlockShared", "BlockView", "block_row", "block_view", "log_of", "node_row"]

_LOG_TABLE = 1 << 14
_LOG = [math.log2(1 + x) / 16 for x in range(_LOG_TABLE)]
_READ_STRIDE, _WRITE_STRIDE = int(EdgeType.READ_STRIDE), int(EdgeType.WRITE_STRIDE)


def log_of(x: float) -> float:
    """log2(1 + x) / 16, at most BOUND."""
    if 0 <= x < _LOG_TABLE:
        return _LOG[int(x)]
    return min(math.log2(1 + max(x, 0)) / 16, BOUND)


def _packed(kind: NodeType) -> tuple[bytes, struct.Struct, bytes]:
    """The row of a node of a kind: what stands before its features, they, and what stands behind."""
    columns, before = COLUMNS[kind], [0.0] * COLUMNS[kind].start
    before[kind] = 1.0
    after = len(NODE_FEATURES) - columns.stop
    features = struct.Struct(f"{columns.stop - columns.start}f")
    return struct.pack(f"{len(before)}f", *before), features, bytes(4 * after)


_PACKED = {kind: _packed(kind) for kind in NodeType}


def node_row(kind: NodeType, features: Sequence[float]) -> bytes:
    """The float32 row of a node with the features of its kind, in [-BOUND, BOUND]."""
    if max(features) > BOUND or min(features) < -BOUND:
        features = [min(max(x, -BOUND), BOUND) for x in features]
    before, row, after = _PACKED[kind]
    return before + row.pack(*features) + after


class BlockShared(NamedTuple):
    """What depends on a block alone."""

    log_instances: float
    """of the product of the iterator extents"""
    head: tuple[float, ...]
    """block features before `has_predicate`"""
    annotated: float
    operations: tuple[float, ...]
    """block features after `exact_bindings`"""
    reads: int
    """number of read regions"""
    buffers: tuple[Buffer, ...]
    """accessed by each read, then by each write"""
    handles: tuple[int, ...]
    """of `buffers`"""
    moves: tuple[tuple[bool, tuple[tuple[int, float], ...]], ...]
    """for each access whether its starts are linear, and the iterators (by number) that move it with
    how far, in elements"""
    edge_types: tuple[int, ...]
    edge_rows: bytes


class BlockView(NamedTuple):
    """What depends on a block and its bindings alone."""

    shared: BlockShared
    head: tuple[float, ...]
    """block features before `depth`"""
    tail: tuple[float, ...]
    """block features after `depth`"""
    stride_vars: tuple[int, ...]
    """loop variable of each stride edge"""
    stride_accesses: tuple[int, ...]
    """access of each stride edge"""
    edge_types: tuple[int, ...]
    """of reads, writes and strides"""
    edge_rows: bytes
    """float32 (len(edge_types), EDGE_FEATURES)"""
    spatial: tuple[int, ...]
    """handles of loop variables that move a spatial iterator"""
    reduce: tuple[int, ...]
    """handles of loop variables that move a reduction iterator"""
    rows: dict[int, bytes]
    """filled by `block_row`"""


_PLACE: dict[str, int] = {
    **dict.fromkeys(("Add", "Sub"), 0),
    "Mul": 1,
    **dict.fromkeys(("Div", "FloorDiv", "Mod", "FloorMod"), 2),
    "Call": 3,
    **dict.fromkeys(("Max", "Min", "Select"), 4),
    **dict.fromkeys(("LT", "LE", "GT", "GE", "EQ", "NE", "And", "Or", "Not"), 4),
    "TensorLoad": 5,
}
"""Place of each kind of expression among the six counts of operations."""


def _operations(facts: BlockFacts) -> tuple[float, ...]:
    counts = [0] * 6
    for kind, count in body_view(facts.node).kinds:
        place = _PLACE.get(kind)
        if place is not None:
            counts[place] += count
    return tuple([min(count / 8, BOUND) for count in counts])


_EDGE = struct.Struct(f"{len(EDGE_FEATURES)}f")


@lru_cache(maxsize=4096)
def _stride_row(stride: float, exact: bool) -> bytes:
    size = abs(stride)
    return _EDGE.pack(
        log_of(size), float(stride < 0), float(size == 1), float(size == 0), float(exact), 0.0
    )


@lru_cache(maxsize=4096)
def _region_row(exact: bool, elements: int) -> bytes:
    return _EDGE.pack(0.0, 0.0, 0.0, 0.0, float(exact), log_of(elements))


def _moved_by(facts: BlockFacts, bindings: tuple[Linear, ...], kind: int) -> tuple[int, ...]:
    """Loop variables that move an iterator of `kind`."""
    pairs = zip(facts.iter_types, bindings, strict=True)
    return tuple([var for t, binding in pairs if t == kind for var in binding.coefficients])


def _make_shared(facts: BlockFacts) -> BlockShared:
    accesses = (*facts.reads, *facts.writes)
    reads = len(facts.reads)
    rows: list[bytes] = []
    moves = []
    for access in accesses:
        elements, fixed, exact = 1, True, True
        for start, extent in access.region:
            elements *= max(extent, 1)
            fixed, exact = fixed and extent > 0, exact and start.exact
        rows.append(_region_row(exact and fixed, elements))
        strides = [(i, access.strides.get(handle)) for i, handle in enumerate(facts.iter_handles)]
        moves.append((exact, tuple([(i, stride) for i, stride in strides if stride is not None])))
    return BlockShared(
        log_instances=log_of(math.prod(facts.iter_extents)),
        head=(
            facts.iter_types.count(SPATIAL) / 8,
            facts.iter_types.count(REDUCE) / 8,
            reads / 8,
            len(facts.writes) / 8,
            float(facts.has_init),
        ),
        annotated=float(facts.annotated),
        operations=_operations(facts),
        reads=reads,
        buffers=tuple([access.buffer for access in accesses]),
        handles=tuple([access.buffer.handle for access in accesses]),
        moves=tuple(moves),
        edge_types=(int(EdgeType.READ),) * reads + (int(EdgeType.WRITE),) * len(facts.writes),
        edge_rows=b"".join(rows),
    )


def _shared(facts: BlockFacts) -> BlockShared:
    """What depends on a block alone; kept with its notes."""
    if facts.notes.shown is None:
        facts.notes.shown = _make_shared(facts)
    return facts.notes.shown  # type: ignore[no-any-return]


def _make_view(place: Placement, shared: BlockShared) -> BlockView:
    facts, bindings = place.facts, place.bindings
    types, rows = list(shared.edge_types), [shared.edge_rows]
    variables: list[int] = []
    moved: list[int] = []
    for number, (straight, moves) in enumerate(shared.moves):
        strides: dict[int, float] = {}
        bent: set[int] = set()
        for iterator, step in moves:
            binding = bindings[iterator]
            for var, coefficient in binding.coefficients.items():
                strides[var] = strides.get(var, 0.0) + step * coefficient
            if not (straight and binding.exact):
                bent.update(binding.coefficients)
        types += [_READ_STRIDE if number < shared.reads else _WRITE_STRIDE] * len(strides)
        variables += strides
        moved += [number] * len(strides)
        rows += [_stride_row(stride, var not in bent) for var, stride in strides.items()]
    exact_bindings = 1.0
    for binding in bindings:
        if not binding.exact:
            exact_bindings = 0.0
    return BlockView(
        shared=shared,
        head=(*shared.head, 1.0 if place.has_predicate else 0.0, shared.annotated),
        tail=(exact_bindings, *shared.operations),
        stride_vars=tuple(variables),
        stride_accesses=tuple(moved),
        edge_types=tuple(types),
        edge_rows=b"".join(rows),
        spatial=_moved_by(facts, bindings, SPATIAL),
        reduce=_moved_by(facts, bindings, REDUCE),
        rows={},
    )


def block_view(place: Placement) -> BlockView:
    """What depends on a block and its bindings alone; kept with its notes."""
    if place.notes.shown is None:
        place.notes.shown = _make_view(place, _shared(place.facts))
    return place.notes.shown  # type: ignore[no-any-return]


def block_row(view: BlockView, trips: int, depth: int) -> bytes:
    """The node row of a block below `depth` loops of `trips` iterations together; cached."""
    place = trips << 16 | depth  # a plain key, which keeps the garbage collector away
    row = view.rows.get(place)
    if row is None:
        features = (view.shared.log_instances, log_of(trips), *view.head, depth / 8, *view.tail)
        row = view.rows[place] = node_row(NodeType.BLOCK, features)
    return row
