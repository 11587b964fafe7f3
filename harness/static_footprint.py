"""How much memory a loop nest moves between cache levels, from footprints per loop level.

For a cache of C bytes, data touched inside the outermost loop whose footprint fits C is loaded once
per execution of that loop, and not again in the next iteration of the loop around it if it is
invariant there: the reuse distance is one footprint, which fits (Wolf and Lam, A data locality
optimizing algorithm, PLDI 1991; Lam, Rothberg and Wolf, The cache performance and optimizations of
blocked algorithms, ASPLOS 1991). Conflict misses are left out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from tirgym.harness.static_accesses import BoundAccess
from tirgym.harness.tensorir.nest import LoopNest, NestPart

__all__ = [
    "LINE",
    "CallTraffic",
    "Footprint",
    "PartTraffic",
    "Prices",
    "Touched",
    "fitting_lines",
    "footprints",
    "lines_by_buffer",
]

LINE = 64
"""Bytes of a cache line."""
PAGE = 4096
SOFT = (0.8, 1.3)
"""Footprint over capacity at which a call that repeats begins to miss, and misses all."""

Box = tuple[float, float, float]
"""Cache lines, pages, and the share of the lines that begin a contiguous run, which no prefetcher
expects."""
Footprint = dict[int, Box]
"""What is touched inside one loop, by buffer handle."""
LINES, PAGES = 0, 1
"""Places in a box, and kinds of traffic."""
Cache = tuple[int, float, "Prices"]
"""LINES or PAGES, capacity, and what an entry costs."""


class Touched(NamedTuple):
    """What a block touches inside each of its loops.

    Entry 0 is the block alone, entry i the i innermost loops.
    """

    buffers: tuple[int, ...]
    """handles"""
    levels: tuple[tuple[Box, ...], ...]
    """a box for each of `buffers`; plain tuples, which the garbage collector leaves alone"""
    totals: tuple[tuple[float, ...], tuple[float, ...]]
    """lines and pages of each level, buffers together"""
    extents: tuple[int, ...]
    """of the loops, innermost first"""
    writes: tuple[int, ...]
    """handles of the buffers that are written"""


def footprints(accesses: tuple[BoundAccess, ...], loops: list[tuple[int, int]]) -> Touched:
    """What the accesses of a block touch inside each loop.

    `loops` are (variable handle, extent), innermost first. An element range is its span, but no
    more than the iterations over it.
    """
    distinct: list[BoundAccess] = []
    for access in accesses:
        for other in distinct:
            same_place = access.buffer == other.buffer and access.dims == other.dims
            if same_place and access.moves == other.moves:
                break
        else:
            distinct.append(access)
    spans = [[float(extent) for extent, _ in access.dims] for access in distinct]
    counts = [list(each) for each in spans]
    boxes = [_box(access.steps, each) for access, each in zip(distinct, counts, strict=True)]
    buffers = tuple(dict.fromkeys([access.buffer for access in distinct]))
    owners = [buffers.index(access.buffer) for access in distinct]
    simple = len(buffers) == len(distinct)
    level = tuple(boxes) if simple else _largest(owners, boxes, len(buffers))
    levels = [level]
    lines = [sum([box[LINES] for box in level])]
    pages = [sum([box[PAGES] for box in level])]
    for variable, extent in loops:
        changed = False
        for i, access in enumerate(distinct) if extent > 1 else ():
            moves = access.moves.get(variable)
            if moves is not None:
                span, count, dims = spans[i], counts[i], access.dims
                for d, step in moves:
                    reached = span[d] + step * (extent - 1)
                    if reached > dims[d][1]:
                        reached = float(dims[d][1])
                    span[d] = reached
                    count[d] = min(reached, count[d] * extent)
                boxes[i] = _box(access.steps, count)
                changed = True
        if changed:
            level = tuple(boxes) if simple else _largest(owners, boxes, len(buffers))
            lines.append(sum([box[LINES] for box in level]))
            pages.append(sum([box[PAGES] for box in level]))
        else:
            lines.append(lines[-1])
            pages.append(pages[-1])
        levels.append(level)
    return Touched(
        buffers,
        tuple(levels),
        (tuple(lines), tuple(pages)),
        tuple([extent for _, extent in loops]),
        tuple(dict.fromkeys([access.buffer for access in accesses if access.write])),
    )


def _largest(owners: list[int], boxes: list[Box], buffers: int) -> tuple[Box, ...]:
    """The largest box of each buffer; `owners` are the buffers of `boxes`."""
    found: list[Box] = [(-1.0, 0.0, 0.0)] * buffers
    for owner, box in zip(owners, boxes, strict=True):
        if box[LINES] > found[owner][LINES]:
            found[owner] = box
    return tuple(found)


def _box(strides: tuple[float, ...], counts: list[float]) -> Box:
    """What a box of `counts` elements a dimension touches; `strides` are bytes."""
    if not counts:
        return 1.0, 1.0, 1.0
    line_run = page_run = counts[-1] * strides[-1]
    lines = pages = 1.0
    for d in range(len(counts) - 2, -1, -1):
        count = counts[d]
        if count == 1.0:
            continue
        stride = strides[d]
        if stride <= LINE or line_run >= stride:
            line_run += (count - 1.0) * stride
        else:
            lines *= count
        if stride <= PAGE or page_run >= stride:
            page_run += (count - 1.0) * stride
        else:
            pages *= count
    if page_run > PAGE:
        pages *= page_run / PAGE
    if line_run > LINE:
        run = line_run / LINE
        return lines * run, pages, 1.0 / run
    return lines, pages, 1.0


class Prices(NamedTuple):
    """Cycles to bring one line into a cache, or one page into the TLB."""

    read: float
    write: float
    """of a line that is written at some time, and has to go back"""
    scattered_read: float
    """more for a line that begins a contiguous run"""
    scattered_write: float


class PartTraffic:
    """What one part of a nest touches, and what it moves when that does not fit a cache.

    A loop around one block alone is that block's level: all that it adds is in `Touched`.
    """

    __slots__ = ("_moved", "_several", "blocks", "boxes", "buffers", "totals")

    def __init__(self, part: NestPart, blocks: tuple[Touched, ...]) -> None:
        """`blocks[b]` is what block b of the part touches."""
        self.blocks = blocks
        self._several = _SharedLoops(part, blocks) if len(blocks) != 1 else None
        if self._several is None:
            self.buffers, self.boxes = blocks[0].buffers, blocks[0].levels[-1]
            self.totals = (blocks[0].totals[LINES][-1], blocks[0].totals[PAGES][-1])
        else:
            top = self._several.boxes[-1]
            self.buffers, self.boxes = tuple(top), tuple(top.values())
            self.totals = (_total(top, LINES), _total(top, PAGES))
        self._moved: dict[tuple[Cache, tuple[bool, ...]], tuple[float, float]] = {}

    def moved(self, cache: Cache, writes: Container[int]) -> tuple[float, float]:
        """Lines (pages) that enter the cache, and their cycles, in one execution of the part, which
        does not fit; `writes` are the buffers that any part writes."""
        key = (cache, tuple([buffer in writes for buffer in self.buffers]))
        found = self._moved.get(key)
        if found is None:
            if self._several is None:
                block = self.blocks[0]
                found = _alone(block, len(block.extents), cache, writes)
            else:
                found = self._several.moved(cache, writes)
            self._moved[key] = found
        return found


class _SharedLoops:
    """The loops of a part that hold several blocks, with what each touches; -1 is the whole part."""

    def __init__(self, part: NestPart, blocks: tuple[Touched, ...]) -> None:
        self.blocks, self.extents = blocks, part.extents
        self.boxes: dict[int, Footprint] = {-1: {}}
        self.children: dict[int, list[tuple[int, int]]] = {-1: []}
        """(loop, -1) for another such loop, (block, level) for what holds one block; loops, then
        blocks that stand alone"""
        shape, boxes, children = part.shape, self.boxes, self.children
        for loop, parent in enumerate(shape.parents):
            first, count = shape.firsts[loop], shape.stops[loop] - shape.firsts[loop]
            if count > 1:
                children[parent].append((loop, -1))
                children[loop], boxes[loop] = [], {}
            elif count and parent in children:
                chain = shape.block_chains[first]
                children[parent].append((first, len(chain) - chain.index(loop)))
        for index, (mine, chain) in enumerate(zip(blocks, shape.block_chains, strict=True)):
            _join(boxes[-1], mine.buffers, mine.levels[-1])
            for place, loop in enumerate(chain):
                if loop not in boxes:
                    break
                _join(boxes[loop], mine.buffers, mine.levels[len(chain) - place])
            else:
                children[chain[-1] if chain else -1].append((index, 0))

    def moved(self, cache: Cache, writes: Container[int]) -> tuple[float, float]:
        """Traffic of one execution of the part."""
        kind, capacity, prices = cache
        total = cycles = 0.0
        todo = [(-1, 1.0)]
        while todo:
            node, times = todo.pop()
            inner = times * max(1, self.extents[node] if node >= 0 else 1)
            here = self.boxes[node]
            before: tuple[int, ...] = ()
            for child, level in self.children[node]:
                if level < 0:
                    if _total(self.boxes[child], kind) > capacity:
                        todo.append((child, inner))
                        before = ()
                        continue
                    buffers = tuple(self.boxes[child])
                    boxes = tuple(self.boxes[child].values())
                else:
                    mine = self.blocks[child]
                    if level and mine.totals[kind][level] > capacity:
                        more, their_cycles = _alone(mine, level, cache, writes)
                        total += inner * more
                        cycles += inner * their_cycles
                        before = ()
                        continue
                    buffers, boxes = mine.buffers, mine.levels[level]
                # what one iteration leaves behind serves the next, so that all iterations together
                # load the footprint of the node once
                more, their_cycles = _load(buffers, boxes, before, here, kind, prices, writes)
                total += times * more
                cycles += times * their_cycles
                before = buffers
        return total, cycles


def _alone(mine: Touched, level: int, cache: Cache, writes: Container[int]) -> tuple[float, float]:
    """Traffic of one execution of a loop whose footprint does not fit, around one block."""
    kind, capacity, prices = cache
    totals, times = mine.totals[kind], 1.0
    while level > 1 and totals[level - 1] > capacity:
        times *= mine.extents[level - 1]
        level -= 1
    here = dict(zip(mine.buffers, mine.levels[level], strict=True))
    below = mine.levels[level - 1]
    lines, cycles = _load(mine.buffers, below, (), here, kind, prices, writes)
    return times * lines, times * cycles


def _total(boxes: Footprint, kind: int) -> float:
    """Lines or pages of all buffers together."""
    return sum([box[kind] for box in boxes.values()])


def _join(into: Footprint, buffers: tuple[int, ...], boxes: tuple[Box, ...]) -> None:
    """Add what another block touches; shared buffers count once."""
    for buffer, box in zip(buffers, boxes, strict=True):
        before = into.get(buffer)
        if before is None or box[LINES] > before[LINES]:
            into[buffer] = box


def _load(
    buffers: tuple[int, ...],
    boxes: tuple[Box, ...],
    before: tuple[int, ...],
    here: Footprint,
    kind: int,
    prices: Prices,
    writes: Container[int],
) -> tuple[float, float]:
    """Lines or pages of `here` that `boxes` need and `before` did not leave, and their cycles."""
    total = cycles = 0.0
    for buffer, box in zip(buffers, boxes, strict=True):
        if buffer not in before:
            count = here[buffer][kind]
            total += count
            if buffer in writes:
                cycles += count * (prices.write + box[2] * prices.scattered_write)
            else:
                cycles += count * (prices.read + box[2] * prices.scattered_read)
    return total, cycles


class CallTraffic:
    """What one call of a program moves between its caches."""

    def __init__(self, parts: Iterable[PartTraffic]) -> None:
        """`parts`: loops, then blocks that stand alone."""
        self.parts = list(parts)
        self.writes: Container[int] = {
            buffer for part in self.parts for block in part.blocks for buffer in block.writes
        }
        """buffers whose lines have to go back"""
        here: Footprint = {}
        for part in self.parts:
            _join(here, part.buffers, part.boxes)
        self._here = here
        self._totals = (_total(here, LINES), _total(here, PAGES))

    def of(self, cache: Cache) -> tuple[float, float]:
        """Lines (pages) that enter a cache in a call that finds it warm, and their cycles."""
        kind, capacity, prices = cache
        share = min(1.0, (self._totals[kind] / capacity - SOFT[0]) / (SOFT[1] - SOFT[0]))
        if share <= 0.0:
            return 0.0, 0.0
        here, writes = self._here, self.writes
        total = cycles = 0.0
        before: tuple[int, ...] = ()
        for part in self.parts:
            if part.totals[kind] > capacity:
                more, their_cycles = part.moved(cache, writes)
                before = ()
            else:
                buffers = part.buffers
                more, their_cycles = _load(buffers, part.boxes, before, here, kind, prices, writes)
                before = buffers
            total += share * more
            cycles += share * their_cycles
        return total, cycles


_WRITTEN = Prices(0.0, 1.0, 0.0, 0.0)


def lines_by_buffer(nest: LoopNest, blocks: list[Touched], capacity: float) -> dict[int, float]:
    """Lines of each buffer (by handle) that enter a cache of `capacity` lines in one warm call.

    They add up to what `CallTraffic` says. Slower than that: one pass for each buffer.
    """
    traffic = CallTraffic(
        [
            PartTraffic(entry.part, tuple(blocks[entry.block : entry.block + len(entry.blocks)]))
            for entry in sorted(nest.parts, key=lambda entry: not entry.part.extents)
        ]
    )
    found: dict[int, float] = {}
    for buffer in dict.fromkeys([buffer for mine in blocks for buffer in mine.buffers]):
        traffic.writes = {buffer}  # so that the price of written lines counts those of this buffer
        found[buffer] = traffic.of((LINES, capacity, _WRITTEN))[1]
    return found


def fitting_lines(touched: Touched, capacity: float) -> float:
    """Lines that the outermost loop of a block touches whose footprint fits `capacity` lines."""
    fitting = [lines for lines in touched.totals[LINES] if lines <= capacity]
    return fitting[-1] if fitting else touched.totals[LINES][0]
