"""How much memory a loop nest moves between cache levels, from footprints per loop level.

For a cache of C bytes, data touched inside the outermost loop whose footprint fits C is loaded once
per execution of that loop, and not again in the next iteration of the loop around it if it is
invariant there: the reuse distance is one footprint, which fits (Wolf and Lam, A data locality
optimizing algorithm, PLDI 1991; Lam, Rothberg and Wolf, The cache performance and optimizations of
blocked algorithms, ASPLOS 1991). Conflict misses are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tirgym.harness.tensorir.nest import Block, LoopNest, NodeCache

__all__ = ["LINE", "BoundAccess", "LoopTree", "Traffic", "bound_accesses", "line_counts"]

LINE = 64
"""Bytes of a cache line."""


class BoundAccess(NamedTuple):
    """An access of a block in terms of the loops around the block."""

    buffer: int
    """handle of the buffer"""
    item: int
    """bytes of an element"""
    dims: tuple[tuple[dict[int, float], int, int], ...]
    """for each dimension: coefficients by loop variable handle, elements at one point, size"""
    strides: dict[int, float]
    """elements that one step of a loop variable moves the access"""
    write: bool


_BOUND = NodeCache(1 << 14)


def bound_accesses(block: Block) -> tuple[BoundAccess, ...]:
    """The reads, then the writes of `block` by loop variables; cached by block realization."""
    hit = _BOUND.entries.get(hash(block.realize))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    facts = block.facts
    bindings = {
        handle: binding.coefficients
        for handle, binding in zip(facts.iter_handles, block.bindings, strict=True)
    }
    made = tuple(_bind(access, bindings, False) for access in facts.reads)
    made += tuple(_bind(access, bindings, True) for access in facts.writes)
    return _BOUND.put(block.realize, made)  # type: ignore[no-any-return]


def _bind(access: Any, bindings: dict[int, dict[int, float]], write: bool) -> BoundAccess:
    dims = []
    for (start, extent), size in zip(access.region, access.buffer.shape, strict=True):
        by_loop: dict[int, float] = {}
        for handle, coefficient in start.coefficients.items():
            for loop, inner in bindings.get(handle, {}).items():
                by_loop[loop] = by_loop.get(loop, 0.0) + coefficient * inner
        dims.append((by_loop, extent if extent > 0 else size, max(size, 1)))
    strides: dict[int, float] = {}
    for handle, stride in access.strides.items():
        for loop, inner in bindings.get(handle, {}).items():
            strides[loop] = strides.get(loop, 0.0) + stride * inner
    elements = 1
    for size in access.buffer.shape:
        elements *= max(size, 1)
    item = max(1, access.buffer.nbytes // elements)
    return BoundAccess(access.buffer.handle, item, tuple(dims), strides, write)


def line_counts(access: BoundAccess, loops: list[tuple[int, int]]) -> list[float]:
    """Cache lines that `access` touches inside each loop, innermost first.

    `loops` are (variable handle, extent), innermost first. Entry 0 is the block alone, entry i the
    i innermost loops. An element range is its span, but no more than the iterations over it.
    """
    dims = access.dims
    rank = len(dims)
    spans = [float(dim[1]) for dim in dims]
    counts = list(spans)
    out = [_lines(access, counts)]
    for variable, extent in loops:
        changed = False
        for d in range(rank):
            coefficient = dims[d][0].get(variable)
            if coefficient:
                span = spans[d] + abs(coefficient) * (extent - 1)
                size = dims[d][2]
                spans[d] = span if span < size else float(size)
                count = counts[d] * extent
                counts[d] = min(spans[d], count)
                changed = True
        out.append(_lines(access, counts) if changed else out[-1])
    return out


def _lines(access: BoundAccess, counts: list[float]) -> float:
    """Cache lines of a box of `counts` elements a dimension."""
    if not counts:
        return 1.0
    dims = access.dims
    run = counts[-1]
    outer = 1.0
    whole = run >= dims[-1][2]
    for d in range(len(counts) - 2, -1, -1):
        if whole:
            run *= counts[d]
            whole = counts[d] >= dims[d][2]
        else:
            outer *= counts[d]
    lines = run * access.item / LINE
    return outer * max(1.0, lines)


class Traffic(NamedTuple):
    """Cache lines that move during one call, by buffer handle."""

    total: float
    by_buffer: dict[int, float]


class LoopTree:
    """Loops with what each touches: for each loop, cache lines by buffer, and its children."""

    __slots__ = ("children", "extents", "lines", "sums", "varies", "writes")

    def __init__(self, nest: LoopNest, tables: list[tuple[tuple[BoundAccess, ...], Any]]) -> None:
        """`tables[b]` are the accesses of block b and, for each, its `line_counts`."""
        count = len(nest.loops)
        self.extents = [max(1, loop.extent) for loop in nest.loops] + [1]
        self.children: list[list[int]] = [[] for _ in range(count + 1)]
        """entry -1 is the root; blocks are numbered from count + 1"""
        self.lines: list[dict[int, float]] = [{} for _ in range(count + 1 + len(nest.blocks))]
        self.varies: dict[tuple[int, int], bool] = {}
        """(loop, buffer): whether an access of the buffer moves with the loop"""
        self.writes: set[int] = set()
        for loop in nest.loops:
            self.children[loop.parent].append(loop.index)
        for block in nest.blocks:
            self._add(nest, block, tables[block.index], count + 1 + block.index)
        self.sums = [sum(lines.values()) for lines in self.lines]

    def _add(self, nest: LoopNest, block: Block, table: Any, number: int) -> None:
        chain = block.chain
        self.children[chain[-1] if chain else -1].append(number)
        root = len(nest.loops)
        nodes = (number, *reversed(chain), root)
        for access, counts in zip(*table, strict=True):
            buffer = access.buffer
            if access.write:
                self.writes.add(buffer)
            last = counts[-1]
            for level, node in enumerate(nodes):
                lines = self.lines[node]
                value = counts[level] if level < len(counts) else last
                if value > lines.get(buffer, 0.0):
                    lines[buffer] = value
            strides = access.strides
            for index in chain:
                if strides.get(nest.loops[index].var):
                    self.varies[index, buffer] = True

    def traffic(self, capacity: float) -> Traffic:
        """Lines that enter a cache of `capacity` lines during a call that finds it warm."""
        root = len(self.extents) - 1
        by_buffer: dict[int, float] = {}
        if self.sums[root] > capacity:
            self._misses(root, 1.0, capacity, by_buffer)
        total = 0.0
        for buffer, lines in by_buffer.items():
            total += lines * (2.0 if buffer in self.writes else 1.0)
        return Traffic(total, by_buffer)

    def _misses(self, node: int, times: float, capacity: float, out: dict[int, float]) -> None:
        """Add the misses below `node`, whose footprint does not fit, run `times` times."""
        inner = times * self.extents[node]
        loops = len(self.extents)
        before: dict[int, float] = {}
        for child in self.children[node]:
            lines = self.lines[child]
            if self.sums[child] > capacity and child < loops:
                self._misses(child, inner, capacity, out)
                before = {}
                continue
            for buffer, count in lines.items():
                if buffer in before:
                    continue
                repeats = inner if (node, buffer) in self.varies else times
                out[buffer] = out.get(buffer, 0.0) + repeats * count
            before = lines
