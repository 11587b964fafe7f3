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

__all__ = ["LINE", "BoundAccess", "Footprint", "LoopTree", "bound_accesses", "footprints"]

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
    dims: tuple[tuple[dict[int, float], int, int], ...]
    """for each dimension: coefficients by loop variable handle, elements at one point, size"""
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
    for (start, extent), size in zip(access.region, access.buffer.shape, strict=True):
        by_loop: dict[int, float] = {}
        for handle, coefficient in start.coefficients.items():
            binding = bindings.get(handle)
            if binding is not None:
                for loop, inner in binding.coefficients.items():
                    by_loop[loop] = by_loop.get(loop, 0.0) + coefficient * inner
        dims.append((by_loop, extent if extent > 0 else size, max(size, 1)))
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
    return BoundAccess(handle, item, tuple(dims), backwards, strides, write, times, wraps)


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


class Footprint(NamedTuple):
    """What one access touches."""

    lines: float
    pages: float


def footprints(access: BoundAccess, loops: list[tuple[int, int]]) -> list[Footprint]:
    """What `access` touches inside each loop, innermost first.

    `loops` are (variable handle, extent), innermost first. Entry 0 is the block alone, entry i the
    i innermost loops. An element range is its span, but no more than the iterations over it.
    """
    dims = access.dims
    spans = [float(dim[1]) for dim in dims]
    counts = list(spans)
    out = [_footprint(access, counts)]
    for variable, extent in loops:
        changed = False
        for d, (coefficients, _, size) in enumerate(dims):
            coefficient = coefficients.get(variable)
            if coefficient:
                span = min(spans[d] + abs(coefficient) * (extent - 1), float(size))
                spans[d] = span
                counts[d] = min(span, counts[d] * extent)
                changed = True
        out.append(_footprint(access, counts) if changed else out[-1])
    return out


def _footprint(access: BoundAccess, counts: list[float]) -> Footprint:
    """Cache lines and pages of a box of `counts` elements a dimension."""
    if not counts:
        return Footprint(1.0, 1.0)
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
    return Footprint(lines * max(1.0, line_run / LINE), pages * max(1.0, page_run / PAGE))


class LoopTree:
    """Loops with what each touches, by buffer, and its children. The root is the last loop."""

    __slots__ = ("children", "extents", "lines", "pages", "writes")

    def __init__(
        self,
        nest: LoopNest,
        tables: list[tuple[tuple[BoundAccess, ...], tuple[list[Footprint], ...]]],
    ) -> None:
        """`tables[b]` are the accesses of block b and, for each, its `footprints`."""
        count = len(nest.loops)
        self.extents = [*(max(1, loop.extent) for loop in nest.loops), 1]
        self.children: list[list[int]] = [[] for _ in range(count + 1)]
        """blocks are numbered from count + 1"""
        nodes = count + 1 + len(nest.blocks)
        self.lines: list[dict[int, float]] = [{} for _ in range(nodes)]
        self.pages: list[dict[int, float]] = [{} for _ in range(nodes)]
        self.writes: set[int] = set()
        for loop in nest.loops:
            self.children[loop.parent].append(loop.index)
        for block in nest.blocks:
            self._add(block, tables[block.index], count)

    def _add(
        self,
        block: Block,
        table: tuple[tuple[BoundAccess, ...], tuple[list[Footprint], ...]],
        root: int,
    ) -> None:
        chain = block.chain
        number = root + 1 + block.index
        self.children[chain[-1] if chain else root].append(number)
        nodes = (number, *reversed(chain), root)
        for access, found in zip(*table, strict=True):
            buffer = access.buffer
            if access.write:
                self.writes.add(buffer)
            for node, (lines, pages) in zip(nodes, (*found, found[-1]), strict=True):
                mine = self.lines[node]
                if lines > mine.get(buffer, 0.0):
                    mine[buffer] = lines
                mine = self.pages[node]
                if pages > mine.get(buffer, 0.0):
                    mine[buffer] = pages

    def line_traffic(self, capacity: float) -> tuple[float, float]:
        """Lines that enter a cache of `capacity` lines during a call that finds it warm.

        Lines that are only read, and lines that are also written.
        """
        return self._split(self.lines, capacity)

    def page_traffic(self, capacity: float) -> tuple[float, float]:
        """Pages whose address must be looked up with `capacity` entries: only read, also written."""
        return self._split(self.pages, capacity)

    def _split(self, touched: list[dict[int, float]], capacity: float) -> tuple[float, float]:
        read = written = 0.0
        for buffer, count in self._traffic(touched, capacity).items():
            if buffer in self.writes:
                written += count
            else:
                read += count
        return read, written

    def _traffic(self, touched: list[dict[int, float]], capacity: float) -> dict[int, float]:
        sums = [sum(each.values()) for each in touched]
        root = len(self.extents) - 1
        share = min(1.0, (sums[root] / capacity - SOFT[0]) / (SOFT[1] - SOFT[0]))
        out: dict[int, float] = {}
        if share > 0.0:
            self._misses(root, share, capacity, touched, sums, out)
        return out

    def _misses(
        self,
        node: int,
        times: float,
        capacity: float,
        touched: list[dict[int, float]],
        sums: list[float],
        out: dict[int, float],
    ) -> None:
        """Add the misses below `node`, whose footprint does not fit, run `times` times.

        Where a child fits, what one iteration leaves behind serves the next, so all iterations
        together load the footprint of `node` once.
        """
        inner = times * self.extents[node]
        here = touched[node]
        before: dict[int, float] = {}
        for child in self.children[node]:
            if child < len(self.extents) and sums[child] > capacity:
                self._misses(child, inner, capacity, touched, sums, out)
                before = {}
                continue
            for buffer in touched[child]:
                if buffer not in before:
                    out[buffer] = out.get(buffer, 0.0) + times * here[buffer]
            before = touched[child]
