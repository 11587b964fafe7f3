"""The accesses of a block in terms of the loops around it.

TVM makes new block nodes around old bodies, so what depends on body and regions alone is kept as an
`AccessPlan` by what it was read from, and a binding of iterators to loops only adds to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tirgym.harness.static_body import loaded
from tirgym.harness.static_ops import BlockOps, block_ops
from tirgym.harness.tensorir.nest import Access, BlockFacts, Linear, linear

__all__ = [
    "AccessPlan",
    "BoundAccess",
    "access_plan",
    "bound_accesses",
    "exact_accesses",
]


class BoundAccess(NamedTuple):
    """An access of a block in terms of the loops around the block."""

    buffer: int
    """handle of the buffer"""
    item: int
    """bytes of an element"""
    dims: tuple[tuple[int, int], ...]
    """for each dimension: elements at one point, size"""
    moves: dict[int, tuple[tuple[int, float], ...]]
    """by loop variable handle: the dimensions that it moves along, and how far (absolute)"""
    steps: tuple[float, ...]
    """bytes between neighbours, by dimension"""
    strides: dict[int, float]
    """elements that one step of a loop variable moves the access"""
    write: bool
    times: float
    """loads or stores at one execution of the block"""
    wraps: frozenset[int]
    """variables of fused loops whose quotients and remainders do not add up to one flat index"""


class _Planned(NamedTuple):
    """What of an access the bindings do not change; fields as in `BoundAccess`."""

    buffer: int
    item: int
    dims: tuple[tuple[int, int], ...]
    steps: tuple[float, ...]
    write: bool
    times: float
    terms: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
    """dimension, and the iterators (by number) that move along it with their coefficients"""
    strides: tuple[tuple[int, float], ...]
    """iterators (by number) with the elements that they move the access"""


class AccessPlan(NamedTuple):
    """What depends on the body and the regions of a block alone."""

    ops: BlockOps
    has_init: bool
    accesses: tuple[_Planned, ...]
    """reads, then writes"""


def access_plan(facts: BlockFacts) -> AccessPlan:
    """The plan of a block; kept with its notes."""
    if facts.notes.plan is None:
        facts.notes.plan = _make_plan(facts)
    return facts.notes.plan  # type: ignore[no-any-return]


def _make_plan(facts: BlockFacts) -> AccessPlan:
    ops = block_ops(facts.node)
    number = {handle: i for i, handle in enumerate(facts.iter_handles)}
    reads = [each for access in facts.reads for each in exact_accesses(access, facts.node)]
    handles = [access.buffer.handle for access in reads]
    made = [
        _plan_access(access, number, False, ops.loads.get(handle, 1) / handles.count(handle))
        for access, handle in zip(reads, handles, strict=True)
    ]
    made += [_plan_access(access, number, True, 1.0) for access in facts.writes]
    return AccessPlan(ops, facts.has_init, tuple(made))


def _plan_access(access: Access, number: dict[int, int], write: bool, times: float) -> _Planned:
    buffer = access.buffer
    shape = [max(1, size) for size in buffer.shape]
    elements = 1
    for size in shape:
        elements *= size
    item = max(1, buffer.nbytes // elements)
    steps = [float(item)]
    for size in shape[:0:-1]:
        steps.append(steps[-1] * size)
    steps.reverse()
    dims, terms = [], []
    for d, (start, extent) in enumerate(access.region):
        dims.append((extent if extent > 0 else buffer.shape[d], shape[d]))
        moved = [(number[h], c) for h, c in start.coefficients.items() if h in number]
        if moved:
            terms.append((d, tuple(moved)))
    strides = tuple([(number[h], s) for h, s in access.strides.items() if h in number])
    return _Planned(
        buffer.handle, item, tuple(dims), tuple(steps), write, times, tuple(terms), strides
    )


def exact_accesses(access: Access, node: Any) -> list[Access]:
    """`access` itself, or the loads behind it where its region has no constant size.

    TVM joins two loads of one buffer into a region from the smaller to the larger index.
    """
    for _, extent in access.region:
        if extent <= 0:
            break
    else:
        return [access]
    found: dict[tuple[tuple[tuple[int, float], ...], ...], Access] = {}
    for source, indices in loaded(node):
        if hash(source) != access.buffer.handle:
            continue
        region = tuple((linear(index), 1) for index in indices)
        strides: dict[int, float] = {}
        step = 1
        for (start, _), extent in zip(reversed(region), reversed(access.buffer.shape), strict=True):
            for handle, coefficient in start.coefficients.items():
                strides[handle] = strides.get(handle, 0.0) + coefficient * step
            step *= max(extent, 1)
        key = tuple(tuple(start.coefficients.items()) for start, _ in region)
        found.setdefault(key, Access(access.buffer, region, strides))
    return list(found.values()) or [access]


def bound_accesses(plan: AccessPlan, bindings: tuple[Linear, ...]) -> tuple[BoundAccess, ...]:
    """The reads, then the writes of a block by loop variables."""
    moved = [tuple(binding.coefficients.items()) for binding in bindings]
    fuzzy = bool([binding for binding in bindings if binding.fuzzy])
    return tuple([_bind(access, bindings, moved, fuzzy) for access in plan.accesses])


_NO_WRAPS: frozenset[int] = frozenset()


def _bind(
    access: _Planned,
    bindings: tuple[Linear, ...],
    moved: list[tuple[tuple[int, float], ...]],
    fuzzy: bool,
) -> BoundAccess:
    buffer, item, dims, steps, write, times, terms, planned = access
    moves: dict[int, tuple[tuple[int, float], ...]] = {}
    for d, iterators in terms:
        by_loop: dict[int, float] = {}
        for number, coefficient in iterators:
            for loop, inner in moved[number]:
                by_loop[loop] = by_loop.get(loop, 0.0) + coefficient * inner
        for loop, step in by_loop.items():
            if step:
                move = (d, step if step > 0 else -step)
                moves[loop] = (*moves[loop], move) if loop in moves else (move,)
    wraps = _NO_WRAPS
    if fuzzy:
        strides, wraps = _strides(planned, bindings)
    else:
        strides = {}
        for number, stride in planned:
            for loop, inner in moved[number]:
                strides[loop] = strides.get(loop, 0.0) + stride * inner
    return BoundAccess(buffer, item, dims, moves, steps, strides, write, times, wraps)


_SELDOM = 1e-3
"""Stride of a variable that moves an access through a quotient alone: not zero, but seldom felt."""


def _strides(
    planned: tuple[tuple[int, float], ...], bindings: tuple[Linear, ...]
) -> tuple[dict[int, float], frozenset[int]]:
    """Elements that a step of each loop variable moves an access, and the variables that wrap.

    The index f of a fused loop comes as a quotient f // n and a remainder f % n. Where they address
    whole rows of n elements, both move the access equally far and the two are the flat index.
    """
    strides: dict[int, float] = {}
    quotients: dict[int, float] = {}
    fuzzy: set[int] = set()
    for number, stride in planned:
        binding = bindings[number]
        fuzzy |= binding.fuzzy
        for loop, inner in binding.coefficients.items():
            into = quotients if loop in binding.fuzzy and abs(inner) < 1.0 else strides
            into[loop] = into.get(loop, 0.0) + stride * inner
    wraps = set()
    for loop in fuzzy & (strides.keys() | quotients.keys()):
        whole, part = strides.get(loop, 0.0), quotients.get(loop, 0.0)
        turns = part / whole if whole else 0.5
        if round(turns) < 1 or abs(turns - round(turns)) > 1e-6:
            wraps.add(loop)
        strides.setdefault(loop, _SELDOM)
    return strides, frozenset(wraps)
