"""`BlockView`: what depends on a block and its bindings alone, computed once for each node.

TVM shares `SBlockRealize` nodes between schedule copies as long as a block is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from tvm.ir.expr import TensorLoad
from tvm.tirx import (
    Add,
    Bind,
    BufferStore,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    SeqStmt,
    Var,
)
from tvm_ffi import Object, structural_equal

from tirgym.harness.tensorir.linear import NO_VARIABLES, linear
from tirgym.harness.tensorir.nest import REDUCE, SPATIAL, BlockFacts, Placement
from tirgym.harness.tensorir.node_cache import NodeCache, items

__all__ = ["BlockView", "block_view", "body_parts", "expression_size"]


class BlockView(NamedTuple):
    """What depends on a block and its bindings alone; variables are handles of loop variables."""

    spatial_vars: tuple[int, ...]
    """in the binding of a spatial iterator"""
    reduce_vars: tuple[int, ...]
    """in the binding of a reduction iterator"""
    lane_vars: tuple[int, ...]
    """an exact linear part of the binding of a spatial iterator that the block writes by"""
    tangled: tuple[int, ...]
    """inside a division or modulo that makes a reduction iterator"""
    domain: int
    """iterator tuples"""
    spatial_only: bool
    known_iters: bool
    """only spatial and reduction iterators"""
    reads: tuple[int, ...]
    """buffers read, each once, in order"""
    writes: tuple[int, ...]
    overlaps: bool
    """reads a buffer that it writes"""
    reduces_into_index: bool
    """a reduction iterator is part of a written index"""
    ordered: bool
    """the result may depend on the order of its iterations"""
    accumulates: bool
    """one store, `x = x op term` with an associative, commutative op"""
    intrinsic: bool
    """the body is no TensorIR that transforms could look into"""
    plain_write: tuple[int, ...] | None
    """position of the iterator that is dimension d of the one written region; None if not plain"""
    mirrored: frozenset[int]
    """buffers accessed at an index that falls while an iterator rises"""
    packed_write: bool
    """the one written region is plain but for spatial iterators v split into v // f and v % f"""


_BODIES = NodeCache(1 << 11)
_SIZES = NodeCache(1 << 11)

_LEAVES = frozenset({Var, IntImm, FloatImm})
_SINGLE = ("a", "b", "value", "condition", "true_value", "false_value", "body")
_SEVERAL = ("args", "indices", "seq")
_FIELDS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
"""those of `_SINGLE` and `_SEVERAL` that a type of node has"""


def _mentions(expr: Any, buffer: int) -> bool:
    """Whether `buffer` is loaded anywhere in `expr`."""
    kind = type(expr)
    if kind in _LEAVES:
        return False
    if kind is TensorLoad:
        return hash(expr.source) == buffer or any(_mentions(i, buffer) for i in expr.indices)
    for part in _SINGLE:
        child = getattr(expr, part, None)
        if hasattr(child, "ty") and _mentions(child, buffer):
            return True
    return any(_mentions(child, buffer) for child in getattr(expr, "args", None) or ())


def _same_index(one: Any, other: Any) -> bool:
    return hash(one) == hash(other) or bool(structural_equal(one, other))


def body_parts(body: Any) -> Iterator[Any]:
    """All nodes in `body`, index expressions included."""
    stack = [body]
    while stack:
        item = stack.pop()
        yield item
        kind = type(item)
        if kind in _LEAVES:
            continue
        known = _FIELDS.get(kind)
        if known is None:
            known = _FIELDS[kind] = (
                tuple([part for part in _SINGLE if hasattr(item, part)]),
                tuple([part for part in _SEVERAL if hasattr(item, part)]),
            )
        for part in known[0]:
            child = getattr(item, part)
            if isinstance(child, Object):
                stack.append(child)
        for part in known[1]:
            children = getattr(item, part)
            if children is not None:
                stack.extend(items(children))


def _mirrored(body: Any) -> frozenset[int]:
    """Buffers that `body` accesses at an index with a negative coefficient."""
    found = set()
    for item in body_parts(body):
        kind = type(item)
        if kind is TensorLoad or kind is BufferStore:
            for index in items(item.indices):
                for c in linear(index).coefficients.values():
                    if c < 0:
                        found.add(hash(item.source if kind is TensorLoad else item.buffer))
    return frozenset(found) if found else NO_VARIABLES


def _accumulates(store: Any) -> bool:
    """`x = x op term` with an associative, commutative op and a term without x."""
    value, target = store.value, hash(store.buffer)
    if type(value) not in (Add, Mul, Max, Min):
        return False
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if type(own) is TensorLoad and hash(own.source) == target:
            same = all(map(_same_index, own.indices, store.indices))
            return same and not _mentions(term, target)
    return False


class _Body(NamedTuple):
    """What depends on the body of a block alone; TVM shares bodies more often than blocks."""

    one_store: bool
    accumulates: bool
    feeds_on_itself: bool
    """its one store reads the stored buffer"""
    opaque: bool
    """holds more than stores and named values, that is, comes from an intrinsic"""
    mirrored: frozenset[int]


def _body(node: Any) -> _Body:
    body = node.body
    hit = _BODIES.entries.get(hash(body))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    one_store = type(body) is BufferStore
    parts = items(body.seq) if type(body) is SeqStmt else [body]
    made = _Body(
        one_store,
        one_store and _accumulates(body),
        one_store and _mentions(body.value, hash(body.buffer)),
        not all(type(part) in (BufferStore, Bind) for part in parts),
        _mirrored(body),
    )
    return _BODIES.put(body, made)  # type: ignore[no-any-return]


def _is_ordered(facts: BlockFacts, body: _Body, overlaps: bool, known_iters: bool) -> bool:
    """Whether the iterations of a block may have to run in their order.

    Reductions with several stores (argmax) come from declared commutative reducers and have an
    initialisation; anything else that feeds on itself must visibly accumulate.
    """
    if not known_iters:
        return True
    if body.one_store:
        return (overlaps or body.feeds_on_itself) and not body.accumulates
    return overlaps and not facts.has_init


def _plain_write(facts: BlockFacts) -> tuple[int, ...] | None:
    if len(facts.writes) != 1:
        return None
    places = {handle: i for i, handle in enumerate(facts.iter_handles)}
    found = []
    for start, extent in facts.writes[0].region:
        terms = start.coefficients
        if extent != 1 or not start.exact or start.constant or len(terms) > 1:
            return None
        if not terms:
            found.append(-1)
            continue
        ((handle, coefficient),) = terms.items()
        if coefficient != 1.0 or handle not in places:
            return None
        found.append(places[handle])
    return tuple(found)


def _packed_write(facts: BlockFacts) -> bool:
    """Whether each spatial iterator is one dimension, or two: its quotient and remainder."""
    if len(facts.writes) != 1:
        return False
    plain: list[int] = []
    quotients: list[tuple[int, int]] = []
    remainders: list[tuple[int, int]] = []
    for dimension in facts.node.writes[0].region:
        index = dimension.min
        kind = type(index)
        if kind is Var:
            plain.append(hash(index))
        elif kind in (FloorDiv, FloorMod) and type(index.a) is Var and type(index.b) is IntImm:
            part = (hash(index.a), index.b.value)
            (quotients if kind is FloorDiv else remainders).append(part)
        else:
            return False
    split = [handle for handle, _ in quotients]
    used = sorted(plain + split)
    needed, reduced = set(), set()
    for handle, extent, iter_type in zip(
        facts.iter_handles, facts.iter_extents, facts.iter_types, strict=True
    ):
        if iter_type != SPATIAL:
            reduced.add(handle)
        elif extent != 1:
            needed.add(handle)
    return (
        sorted(quotients) == sorted(remainders)
        and len(set(used)) == len(used)
        and needed.issubset(used)
        and reduced.isdisjoint(used)
        and all(extent == 1 for _, extent in facts.writes[0].region)
    )


def _make_view(place: Placement) -> BlockView:
    facts = place.facts
    written, own = _own_view(facts)
    spatial: dict[int, None] = {}
    reduce: dict[int, None] = {}
    lanes: dict[int, None] = {}
    tangled: dict[int, None] = {}
    for handle, kind, binding in zip(
        facts.iter_handles, facts.iter_types, place.bindings, strict=True
    ):
        terms, fuzzy = binding.coefficients, binding.fuzzy
        if kind == SPATIAL:
            spatial.update(dict.fromkeys(terms))
            if handle in written:
                lanes.update(
                    dict.fromkeys([v for v in terms if v not in fuzzy] if fuzzy else terms)
                )
        else:
            reduce.update(dict.fromkeys(terms))
            if kind == REDUCE and fuzzy:
                tangled.update(dict.fromkeys(fuzzy))
    return BlockView(
        tuple(spatial),
        tuple(reduce),
        tuple([variable for variable in lanes if variable not in reduce]),
        tuple(tangled),
        *own,
    )


def _own_view(facts: BlockFacts) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Iterators that the block writes by, and what does not depend on bindings; kept by block.

    In the order of the fields of `BlockView` from `domain` on.
    """
    if facts.view is not None:
        return facts.view  # type: ignore[no-any-return]
    written = {v for w in facts.writes for start, _ in w.region for v in start.coefficients}
    reads = tuple(dict.fromkeys([r.buffer.handle for r in facts.reads]))
    writes = tuple(dict.fromkeys([w.buffer.handle for w in facts.writes]))
    plain, body = _plain_write(facts), _body(facts.node)
    types = facts.iter_types
    known = set(types) <= {SPATIAL, REDUCE}
    overlaps = not set(reads).isdisjoint(writes)
    reducers = [h for h, t in zip(facts.iter_handles, types, strict=True) if t == REDUCE]
    own = (
        prod(facts.iter_extents),
        types.count(SPATIAL) == len(types),  # spatial_only
        known,
        reads,
        writes,
        overlaps,
        not written.isdisjoint(reducers),  # reduces_into_index
        _is_ordered(facts, body, overlaps, known),
        body.accumulates,
        body.opaque or len(facts.node.match_buffers) > 0,  # intrinsic
        plain,
        body.mirrored,
        plain is None and _packed_write(facts),
    )
    facts.view = tuple(written), own
    return facts.view  # type: ignore[no-any-return]


def block_view(place: Placement) -> BlockView:
    """What depends on a block and its bindings alone; kept with the placement."""
    if place.view is None:
        place.view = _make_view(place)
    return place.view  # type: ignore[no-any-return]


def expression_size(node: Any) -> int:
    """Nodes in the body of a block, index expressions included; cached by body."""
    body = node.body
    hit = _SIZES.entries.get(hash(body))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    return _SIZES.put(body, sum(1 for _ in body_parts(body)))  # type: ignore[no-any-return]
