"""`BlockView`: what depends on a block and its bindings alone, computed once for each node.

TVM shares `SBlockRealize` nodes between schedule copies as long as a block is not touched.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from tvm.tirx import FloorDiv, FloorMod, IntImm, Var

from tirgym.harness.tensorir.body_view import BodyView, body_parts, body_view, expression_size
from tirgym.harness.tensorir.nest import REDUCE, SPATIAL, BlockFacts, Placement
from tirgym.harness.tensorir.wmma import CALLS

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
    """one store, `x = x op term` with an associative, commutative op, or a product of matrices that is
    added to one"""
    intrinsic: bool
    """the body is no TensorIR that transforms could look into"""
    plain_write: tuple[int, ...] | None
    """position of the iterator that is dimension d of the one written region; None if not plain"""
    mirrored: frozenset[int]
    """buffers accessed at an index that falls while an iterator rises"""
    packed_write: bool
    """the one written region is plain but for spatial iterators v split into v // f and v % f"""
    collective: bool
    """an instruction that all threads of a warp run together, see `wmma`"""


def _is_ordered(facts: BlockFacts, body: BodyView, overlaps: bool, known_iters: bool) -> bool:
    """Whether the iterations of a block may have to run in their order.

    Reductions with several stores (argmax) come from declared commutative reducers and have an
    initialisation; anything else that feeds on itself must visibly accumulate.
    """
    if not known_iters:
        return True
    if body.accumulates:
        return False
    if body.one_store:
        return overlaps or body.feeds_on_itself
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
    if facts.notes.view is not None:
        return facts.notes.view  # type: ignore[no-any-return]
    written = {v for w in facts.writes for start, _ in w.region for v in start.coefficients}
    reads = tuple(dict.fromkeys([r.buffer.handle for r in facts.reads]))
    writes = tuple(dict.fromkeys([w.buffer.handle for w in facts.writes]))
    plain, body = _plain_write(facts), body_view(facts.node)
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
        not CALLS.isdisjoint([name for name, _ in body.calls]),  # collective
    )
    facts.notes.view = tuple(written), own
    return facts.notes.view  # type: ignore[no-any-return]


def block_view(place: Placement) -> BlockView:
    """What depends on a block and its bindings alone; kept with the placement."""
    if place.notes.view is None:
        place.notes.view = _make_view(place)
    return place.notes.view  # type: ignore[no-any-return]
