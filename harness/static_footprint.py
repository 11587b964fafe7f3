"""How much memory a loop nest moves between cache levels, from footprints per loop level.

For a cache of C bytes, data touched inside the outermost loop whose footprint fits C is loaded once
per execution of that loop, and not again in the next iteration of the loop around it if it is
invariant there: the reuse distance is one footprint, which fits (Wolf and Lam, A data locality
optimizing algorithm, PLDI 1991; Lam, Rothberg and Wolf, The cache performance and optimizations of
blocked algorithms, ASPLOS 1991). Conflict misses are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tirgym.harness.static_body import loaded
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.nest import (
    Access,
    Block,
    Linear,
    LoopNest,
    NodeCache,
    linear,
)

__all__ = ["LINE", "BoundAccess", "Footprint", "LoopTree", "Prices", "bound_accesses", "footprints"]

LINE = 64
"""Bytes of a cache line."""
PAGE = 4096
SOFT = (0.8, 1.3)
"""Footprint over capacity at which a call that repeats begins to miss, and misses all."""


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


_BOUND = NodeCache(1 << 11)


def bound_accesses(block: Block) -> tuple[BoundAccess, ...]:
    """The reads, then the writes of `block` by loop variables; cached by block realization."""
    hit = _BOUND.entries.get(hash(block.realize))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    facts = block.facts
    bindings = dict(zip(facts.iter_handles, block.bindings, strict=True))
    loads = block_ops(facts.node).loads
    reads = [each for access in facts.reads for each in _exact(access, facts.node)]
    handles = [access.buffer.handle for access in reads]
    made = tuple(
        _bind(access, bindings, False, loads.get(handle, 1) / handles.count(handle))
        for access, handle in zip(reads, handles, strict=True)
    )
    made += tuple(_bind(access, bindings, True, 1.0) for access in facts.writes)
    return _BOUND.put(block.realize, made)  # type: ignore[no-any-return]


def _exact(access: Access, node: Any) -> list[Access]:
    """`access` itself, or the loads behind it where its region has no constant size.

    TVM joins two loads of one buffer into a region from the smaller to the larger index.
    """
    if all(extent > 0 for _, extent in access.region):
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


def _bind(access: Access, bindings: dict[int, Linear], write: bool, times: float) -> BoundAccess:
    dims = []
    moves: dict[int, tuple[tuple[int, float], ...]] = {}
    for d, ((start, extent), size) in enumerate(
        zip(access.region, access.buffer.shape, strict=True)
    ):
        by_loop: dict[int, float] = {}
        for handle, coefficient in start.coefficients.items():
            binding = bindings.get(handle)
            if binding is not None:
                for loop, inner in binding.coefficients.items():
                    by_loop[loop] = by_loop.get(loop, 0.0) + coefficient * inner
        dims.append((extent if extent > 0 else size, max(size, 1)))
        for loop, coefficient in by_loop.items():
            if coefficient:
                moves[loop] = (*moves.get(loop, ()), (d, abs(coefficient)))
    strides, wraps = _strides(access, bindings)
    elements = 1
    for size in access.buffer.shape:
        elements *= max(size, 1)
    item = max(1, access.buffer.nbytes // elements)
    steps = [float(item)]
    for size in access.buffer.shape[:0:-1]:
        steps.append(steps[-1] * max(size, 1))
    backwards = tuple(reversed(steps))
    handle = access.buffer.handle
    shape = tuple(dims)
    return BoundAccess(handle, item, shape, moves, backwards, strides, write, times, wraps)


_SELDOM = 1e-3
"""Stride of a variable that moves an access through a quotient alone: not zero, but seldom felt."""


def _strides(
    access: Access, bindings: dict[int, Linear]
) -> tuple[dict[int, float], frozenset[int]]:
    """Elements that a step of each loop variable moves `access`, and the variables that wrap.

    The index f of a fused loop comes as a quotient f // n and a remainder f % n. Where they address
    whole rows of n elements, both move the access equally far and the two are the flat index.
    """
    strides: dict[int, float] = {}
    quotients: dict[int, float] = {}
    fuzzy: set[int] = set()
    for handle, stride in access.strides.items():
        binding = bindings.get(handle)
        if binding is None:
            continue
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


Box = tuple[float, float, float]
"""Cache lines, pages, and the share of the lines that begin a contiguous run, which no prefetcher
expects."""
Footprint = dict[int, Box]
"""What is touched inside one loop, by buffer handle."""
_LINES, _PAGES = 0, 1


def footprints(
    accesses: tuple[BoundAccess, ...], loops: list[tuple[int, int]]
) -> tuple[Footprint, ...]:
    """What the accesses of a block touch inside each loop, innermost first.

    `loops` are (variable handle, extent), innermost first. Entry 0 is the block alone, entry i the
    i innermost loops. An element range is its span, but no more than the iterations over it.
    """
    spans = [[float(extent) for extent, _ in access.dims] for access in accesses]
    counts = [list(each) for each in spans]
    boxes = [_box(access, each) for access, each in zip(accesses, counts, strict=True)]
    last = _by_buffer(accesses, boxes)
    out = [last]
    for variable, extent in loops:
        changed = False
        if extent > 1:
            for i, access in enumerate(accesses):
                moves = access.moves.get(variable)
                if moves is not None:
                    span, count, dims = spans[i], counts[i], access.dims
                    for d, step in moves:
                        span[d] = min(span[d] + step * (extent - 1), float(dims[d][1]))
                        count[d] = min(span[d], count[d] * extent)
                    boxes[i] = _box(access, count)
                    changed = True
        if changed:
            last = _by_buffer(accesses, boxes)
        out.append(last)
    return tuple(out)


def _by_buffer(accesses: tuple[BoundAccess, ...], boxes: list[Box]) -> Footprint:
    """The largest box of each buffer."""
    found: Footprint = {}
    for access, box in zip(accesses, boxes, strict=True):
        before = found.get(access.buffer)
        if before is None or box[0] > before[0]:
            found[access.buffer] = box
    return found


def _joined(one: Footprint, other: Footprint) -> Footprint:
    """What two blocks touch together; shared buffers count once."""
    found = dict(one)
    for buffer, box in other.items():
        before = found.get(buffer)
        if before is None or box[0] > before[0]:
            found[buffer] = box
    return found


def _box(access: BoundAccess, counts: list[float]) -> Box:
    """What a box of `counts` elements a dimension touches."""
    if not counts:
        return 1.0, 1.0, 1.0
    strides = access.steps
    line_run = page_run = counts[-1] * strides[-1]
    lines = pages = 1.0
    for d in range(len(counts) - 2, -1, -1):
        stride, count = strides[d], counts[d]
        if stride <= LINE or line_run >= stride:
            line_run += (count - 1.0) * stride
        else:
            lines *= count
        if stride <= PAGE or page_run >= stride:
            page_run += (count - 1.0) * stride
        else:
            pages *= count
    run = max(1.0, line_run / LINE)
    return lines * run, pages * max(1.0, page_run / PAGE), 1.0 / run


class Prices(NamedTuple):
    """Cycles to bring one line into a cache, or one page into the TLB."""

    read: float
    write: float
    """of a line that is written at some time, and has to go back"""
    scattered_read: float
    """more for a line that begins a contiguous run"""
    scattered_write: float


_NOTHING: Footprint = {}


class LoopTree:
    """Loops with what each touches, by buffer, and its children. The root is the last loop."""

    __slots__ = ("children", "extents", "touched", "writes")

    def __init__(
        self,
        nest: LoopNest,
        tables: list[tuple[tuple[BoundAccess, ...], tuple[Footprint, ...]]],
    ) -> None:
        """`tables[b]` are the accesses of block b and its `footprints`."""
        root = len(nest.loops)
        self.extents = [*(max(1, loop.extent) for loop in nest.loops), 1]
        self.children: list[list[int]] = [[] for _ in range(root + 1)]
        """blocks are numbered from root + 1"""
        self.touched = [_NOTHING] * (root + 1 + len(nest.blocks))
        self.writes: set[int] = set()
        touched = self.touched
        for loop in nest.loops:
            self.children[loop.parent].append(loop.index)
        for block in nest.blocks:
            accesses, found = tables[block.index]
            chain, number = block.chain, root + 1 + block.index
            self.children[chain[-1] if chain else root].append(number)
            touched[number] = found[0]
            for node, mine in zip(reversed(chain), found[1:], strict=True):
                before = touched[node]
                touched[node] = mine if before is _NOTHING else _joined(before, mine)
            before = touched[root]
            touched[root] = found[-1] if before is _NOTHING else _joined(before, found[-1])
            self.writes.update(access.buffer for access in accesses if access.write)

    def line_traffic(self, capacity: float, prices: Prices) -> tuple[float, float]:
        """Lines that enter a cache of `capacity` lines in a call that finds it warm; their cycles."""
        return self._traffic(_LINES, capacity, prices)

    def page_traffic(self, capacity: float, prices: Prices) -> tuple[float, float]:
        """Pages whose address must be looked up when `capacity` are known, and the cycles of it."""
        return self._traffic(_PAGES, capacity, prices)

    def _traffic(self, kind: int, capacity: float, prices: Prices) -> tuple[float, float]:
        touched, root = self.touched, len(self.extents) - 1
        everything = sum([box[kind] for box in touched[root].values()])
        share = min(1.0, (everything / capacity - SOFT[0]) / (SOFT[1] - SOFT[0]))
        if share <= 0.0:
            return 0.0, 0.0
        total = cycles = 0.0
        todo = [(root, share)]
        while todo:
            node, times = todo.pop()
            inner = times * self.extents[node]
            here = touched[node]
            before = _NOTHING
            for child in self.children[node]:
                below = touched[child]
                if child <= root and sum([box[kind] for box in below.values()]) > capacity:
                    todo.append((child, inner))
                    before = _NOTHING
                    continue
                # what one iteration leaves behind serves the next, so that all iterations together
                # load the footprint of the node once
                for buffer, box in below.items():
                    if buffer not in before:
                        count = times * here[buffer][kind]
                        total += count
                        if buffer in self.writes:
                            cycles += count * (prices.write + box[2] * prices.scattered_write)
                        else:
                            cycles += count * (prices.read + box[2] * prices.scattered_read)
                before = below
        return total, cycles
