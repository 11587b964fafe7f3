"""`BlockView`: the part of the graph that a TensorIR block and its bindings decide alone.

Cached by node, which TVM shares between schedule copies.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import tvm.tirx as tx
from tvm.ir.expr import Call, Expr, TensorLoad

from tirgym.harness.static_accesses import access_plan
from tirgym.harness.static_ops import elements
from tirgym.harness.tensorir.nest import (
    REDUCE,
    SPATIAL,
    Access,
    BlockFacts,
    Buffer,
    Linear,
    NodeCache,
    Placement,
)
from tirgym.spaces.graph import BOUND, COLUMNS, EDGE_FEATURES, NODE_FEATURES, EdgeType, NodeType

__all__ = ["BlockShared", "BlockView", "block_row", "block_view", "log_of", "node_row"]

_LOG_TABLE = 1 << 14
_LOG = [math.log2(1 + x) / 16 for x in range(_LOG_TABLE)]
_READ_STRIDE, _WRITE_STRIDE = int(EdgeType.READ_STRIDE), int(EdgeType.WRITE_STRIDE)
_NO_STRIDE = (0.0, True)
_ROW = f"{len(NODE_FEATURES)}f"


def log_of(x: float) -> float:
    """log2(1 + x) / 16, at most BOUND."""
    if 0 <= x < _LOG_TABLE:
        return _LOG[int(x)]
    return min(math.log2(1 + max(x, 0)) / 16, BOUND)


def node_row(kind: NodeType, features: Sequence[float]) -> bytes:
    """The float32 row of a node with the features of its kind, in [-BOUND, BOUND]."""
    row = [0.0] * len(NODE_FEATURES)
    row[kind] = 1.0
    row[COLUMNS[kind]] = [min(max(x, -BOUND), BOUND) for x in features]
    return struct.pack(_ROW, *row)


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
    accesses: tuple[Access, ...]
    """each read, then each write"""
    buffers: tuple[Buffer, ...]
    handles: tuple[int, ...]
    """of `buffers`"""
    straight: tuple[bool, ...]
    """whether the starts of each access are linear"""
    edge_types: tuple[int, ...]
    edge_rows: tuple[tuple[float, ...], ...]


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


_SHARED = NodeCache(1 << 10)
"""By identity of the access plan, which is kept alive, and what else the features show."""
_VIEWS = NodeCache(1 << 10)
"""By identity of the shared part, which is kept alive, and the bindings."""

_PLACE: dict[type, int] = {
    tx.Add: 0,
    tx.Sub: 0,
    tx.Mul: 1,
    tx.Div: 2,
    tx.FloorDiv: 2,
    tx.Mod: 2,
    tx.FloorMod: 2,
    Call: 3,
    **dict.fromkeys((tx.Max, tx.Min, tx.Select), 4),
    **dict.fromkeys((tx.LT, tx.LE, tx.GT, tx.GE, tx.EQ, tx.NE, tx.And, tx.Or, tx.Not), 4),
    TensorLoad: 5,
}
_BINARY = frozenset(_PLACE) - {tx.Not, tx.Select, Call, TensorLoad}
_LEAVES = frozenset((tx.Var, tx.IntImm, tx.FloatImm))
_CHILDREN = ("a", "value", "condition", "true_value", "false_value", "body")
_NODES = (Expr, tx.Stmt)


def _count(node: Any, counts: list[int]) -> None:
    """Add the operations under `node`, index expressions apart, to `counts`."""
    kind = type(node)
    if kind in _LEAVES:
        return
    place = _PLACE.get(kind)
    if place is not None:
        counts[place] += 1
    if kind in _BINARY:
        _count(node.a, counts)
        _count(node.b, counts)
    elif kind is tx.BufferStore:
        _count(node.value, counts)
    elif kind is Call or kind is tx.SeqStmt:
        for child in elements(node.args if kind is Call else node.seq):
            if isinstance(child, _NODES):
                _count(child, counts)
    elif kind is not TensorLoad:
        for name in _CHILDREN:
            child = getattr(node, name, None)
            if isinstance(child, _NODES):
                _count(child, counts)


@lru_cache(maxsize=4096)
def _stride_row(stride: float, exact: bool) -> tuple[float, ...]:
    size = abs(stride)
    return (log_of(size), float(stride < 0), float(size == 1), float(size == 0), float(exact), 0.0)


def _moved_by(facts: BlockFacts, bindings: tuple[Linear, ...], kind: int) -> tuple[int, ...]:
    """Loop variables that move an iterator of `kind`."""
    pairs = zip(facts.iter_types, bindings, strict=True)
    return tuple([var for t, binding in pairs if t == kind for var in binding.coefficients])


def _make_shared(facts: BlockFacts) -> BlockShared:
    counts = [0] * 6
    _count(facts.node.body, counts)
    accesses = (*facts.reads, *facts.writes)
    reads = len(facts.reads)
    rows: list[tuple[float, ...]] = []
    straight: list[bool] = []
    for access in accesses:
        elements, fixed, exact = 1, True, True
        for start, extent in access.region:
            elements *= max(extent, 1)
            fixed, exact = fixed and extent > 0, exact and start.exact
        rows.append((0.0, 0.0, 0.0, 0.0, float(exact and fixed), log_of(elements)))
        straight.append(exact)
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
        operations=tuple(min(count / 8, BOUND) for count in counts),
        reads=reads,
        accesses=accesses,
        buffers=tuple(access.buffer for access in accesses),
        handles=tuple(access.buffer.handle for access in accesses),
        straight=tuple(straight),
        edge_types=(int(EdgeType.READ),) * reads + (int(EdgeType.WRITE),) * len(facts.writes),
        edge_rows=tuple(rows),
    )


def _shared(facts: BlockFacts) -> BlockShared:
    """What depends on a block alone; kept with it, and shared between blocks that do the same."""
    if facts.notes.shown is None:
        plan = access_plan(facts)
        key = (id(plan), facts.iter_types, facts.iter_extents, facts.annotated)
        found = _SHARED.entries.get(key)
        facts.notes.shown = found or _SHARED.put_at(key, plan, _make_shared(facts))
    return facts.notes.shown  # type: ignore[no-any-return]


def _strides(access: Access, straight: bool, place: Placement) -> dict[int, tuple[float, bool]]:
    """Elements that one iteration of each loop variable moves `access`, and whether exactly."""
    found: dict[int, tuple[float, bool]] = {}
    strides = access.strides
    for iterator, binding in zip(place.facts.iter_handles, place.bindings, strict=True):
        step = strides.get(iterator)
        if step is None:
            continue
        for var, coefficient in binding.coefficients.items():
            before, exact = found.get(var, _NO_STRIDE)
            found[var] = before + step * coefficient, exact and straight and binding.exact
    return found


def _make_view(place: Placement, shared: BlockShared) -> BlockView:
    facts, bindings = place.facts, place.bindings
    types, rows = list(shared.edge_types), list(shared.edge_rows)
    variables: list[int] = []
    moved: list[int] = []
    for number, access in enumerate(shared.accesses):
        kind = _READ_STRIDE if number < shared.reads else _WRITE_STRIDE
        found = _strides(access, shared.straight[number], place)
        for var, (stride, exact) in found.items():
            types.append(kind)
            variables.append(var)
            moved.append(number)
            rows.append(_stride_row(stride, exact))
    exact_bindings = float(all(binding.exact for binding in bindings))
    return BlockView(
        shared=shared,
        head=(*shared.head, 1.0 if place.has_predicate else 0.0, shared.annotated),
        tail=(exact_bindings, *shared.operations),
        stride_vars=tuple(variables),
        stride_accesses=tuple(moved),
        edge_types=tuple(types),
        edge_rows=struct.pack(f"{len(EDGE_FEATURES) * len(rows)}f", *chain.from_iterable(rows)),
        spatial=_moved_by(facts, bindings, SPATIAL),
        reduce=_moved_by(facts, bindings, REDUCE),
        rows={},
    )


def block_view(place: Placement) -> BlockView:
    """What depends on a block and its bindings alone; kept with the placement.

    Shared between blocks that do the same, since TVM makes new nodes for many that stay as they
    were.
    """
    if place.notes.shown is None:
        shared = _shared(place.facts)
        key = (id(shared), place.has_predicate, place.terms)
        found = _VIEWS.entries.get(key)
        place.notes.shown = found or _VIEWS.put_at(key, shared, _make_view(place, shared))
    return place.notes.shown  # type: ignore[no-any-return]


def block_row(view: BlockView, trips: int, depth: int) -> bytes:
    """The node row of a block below `depth` loops of `trips` iterations together; cached."""
    place = trips << 16 | depth  # a plain key, which keeps the garbage collector away
    row = view.rows.get(place)
    if row is None:
        features = (view.shared.log_instances, log_of(trips), *view.head, depth / 8, *view.tail)
        row = view.rows[place] = node_row(NodeType.BLOCK, features)
    return row
