"""How much memory a loop nest moves between cache levels, from footprints per loop level.

For a cache of C bytes, data touched inside the outermost loop whose footprint fits C is loaded once
per execution of that loop, and not again in the next iteration of the loop around it if it is
invariant there: the reuse distance is one footprint, which fits (Wolf and Lam, A data locality
optimizing algorithm, PLDI 1991; Lam, Rothberg and Wolf, The cache performance and optimizations of
blocked algorithms, ASPLOS 1991). Conflict misses are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from tirgym.harness.static_accesses import BoundAccess
from tirgym.harness.tensorir.nest import LoopNest

__all__ = [
    "LINE",
    "Footprint",
    "LoopTree",
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
Cache = tuple[int, int, float, "Prices"]
"""Number, LINES or PAGES, capacity, and what an entry costs."""


class Touched(NamedTuple):
    """What a block touches inside each of its loops.

    Entry 0 is the block alone, entry i the i innermost loops.
    """

    levels: tuple[Footprint, ...]
    totals: tuple[tuple[float, ...], tuple[float, ...]]
    """lines and pages of each level, buffers together"""
    extents: tuple[int, ...]
    """of the loops, innermost first"""
    writes: tuple[int, ...]
    """handles of the buffers that are written"""
    reads: tuple[int, ...]
    """and of those that are only read"""
    traffic: dict[tuple[int, int, tuple[bool, ...]], tuple[float, float]]
    """filled by `LoopTree`: by cache, level, and which of `reads` other blocks write"""


def footprints(accesses: tuple[BoundAccess, ...], loops: list[tuple[int, int]]) -> Touched:
    """What the accesses of a block touch inside each loop.

    `loops` are (variable handle, extent), innermost first. An element range is its span, but no
    more than the iterations over it.
    """
    writes = tuple(dict.fromkeys([a.buffer for a in accesses if a.write]))
    reads = tuple(dict.fromkeys([a.buffer for a in accesses if a.buffer not in writes]))
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
    last = _by_buffer(distinct, boxes)
    levels = [last]
    lines = [_total(last, LINES)]
    pages = [_total(last, PAGES)]
    for variable, extent in loops:
        changed = False
        if extent > 1:
            for i, access in enumerate(distinct):
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
            last = _by_buffer(distinct, boxes)
            lines.append(_total(last, LINES))
            pages.append(_total(last, PAGES))
        else:
            lines.append(lines[-1])
            pages.append(pages[-1])
        levels.append(last)
    extents = tuple([extent for _, extent in loops])
    return Touched(tuple(levels), (tuple(lines), tuple(pages)), extents, writes, reads, {})


def _total(boxes: Footprint, kind: int) -> float:
    """Lines or pages of all buffers together."""
    return sum([box[kind] for box in boxes.values()])


def _by_buffer(accesses: list[BoundAccess], boxes: list[Box]) -> Footprint:
    """The largest box of each buffer."""
    found: Footprint = {}
    for i, box in enumerate(boxes):
        buffer = accesses[i].buffer
        before = found.get(buffer)
        if before is None or box[0] > before[0]:
            found[buffer] = box
    return found


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


_NOTHING: Footprint = {}


class LoopTree:
    """The root and the loops that hold several blocks, with what each touches.

    A loop around one block alone is that block's level: all that it adds is in `Touched`.
    """

    __slots__ = ("blocks", "children", "extents", "foreign", "totals", "touched", "writes")

    def __init__(self, nest: LoopNest, blocks: list[Touched]) -> None:
        """`blocks[b]` is what block b touches."""
        self.blocks = blocks
        self.extents = {-1: 1}
        self.touched: dict[int, Footprint] = {-1: {}}
        self.children: dict[int, list[tuple[int, int]]] = {-1: []}
        """(loop, -1) for a loop with several blocks, (block, level) for what holds one; loops,
        then blocks that stand alone"""
        touched, children = self.touched, self.children
        for loop in nest.loops:
            below = loop.blocks
            if len(below) > 1:
                children[loop.parent].append((loop.index, -1))
                children[loop.index] = []
                touched[loop.index] = {}
                self.extents[loop.index] = max(1, loop.extent)
            elif below and loop.parent in children:
                level = len(nest.blocks[below[0]].chain) - len(loop.chain) + 1
                children[loop.parent].append((below[0], level))
        for block, mine in zip(nest.blocks, blocks, strict=True):
            chain, levels = block.chain, mine.levels
            _join(touched[-1], levels[-1])
            for place, node in enumerate(chain):
                if node not in touched:
                    break
                _join(touched[node], levels[len(chain) - place])
            else:
                children[chain[-1] if chain else -1].append((block.index, 0))
        self.writes = {buffer for mine in blocks for buffer in mine.writes}
        self.foreign = [tuple([b in self.writes for b in mine.reads]) for mine in blocks]
        self.totals = [
            {node: _total(boxes, kind) for node, boxes in touched.items()}
            for kind in (LINES, PAGES)
        ]

    def traffic(self, cache: Cache) -> tuple[float, float]:
        """Lines (pages) that enter a cache in a call that finds it warm, and their cycles."""
        _, kind, capacity, prices = cache
        totals = self.totals[kind]
        share = min(1.0, (totals[-1] / capacity - SOFT[0]) / (SOFT[1] - SOFT[0]))
        if share <= 0.0:
            return 0.0, 0.0
        total = cycles = 0.0
        todo = [(-1, share)]
        while todo:
            node, times = todo.pop()
            inner = times * self.extents[node]
            here = self.touched[node]
            before = _NOTHING
            for child, level in self.children[node]:
                if level < 0:
                    if totals[child] > capacity:
                        todo.append((child, inner))
                        before = _NOTHING
                        continue
                    below = self.touched[child]
                else:
                    mine = self.blocks[child]
                    if level and mine.totals[kind][level] > capacity:
                        more, their_cycles = self._alone(mine, child, level, cache)
                        total += inner * more
                        cycles += inner * their_cycles
                        before = _NOTHING
                        continue
                    below = mine.levels[level]
                # what one iteration leaves behind serves the next, so that all iterations together
                # load the footprint of the node once
                more, their_cycles = _load(below, before, here, kind, prices, self.writes)
                total += times * more
                cycles += times * their_cycles
                before = below
        return total, cycles

    def _alone(self, mine: Touched, block: int, level: int, cache: Cache) -> tuple[float, float]:
        """Traffic of one execution of a loop whose footprint does not fit, around one block."""
        number, kind, capacity, prices = cache
        key = (number, level, self.foreign[block])
        found = mine.traffic.get(key)
        if found is None:
            totals, times = mine.totals[kind], 1.0
            while level > 1 and totals[level - 1] > capacity:
                times *= mine.extents[level - 1]
                level -= 1
            below, here = mine.levels[level - 1], mine.levels[level]
            lines, cycles = _load(below, _NOTHING, here, kind, prices, self.writes)
            found = mine.traffic[key] = times * lines, times * cycles
        return found


def _join(into: Footprint, other: Footprint) -> None:
    """Add what another block touches; shared buffers count once."""
    for buffer, box in other.items():
        before = into.get(buffer)
        if before is None or box[0] > before[0]:
            into[buffer] = box


def _load(
    below: Footprint,
    before: Footprint,
    here: Footprint,
    kind: int,
    prices: Prices,
    writes: set[int],
) -> tuple[float, float]:
    """Lines or pages of `here` that `below` needs and `before` did not leave, and their cycles."""
    total = cycles = 0.0
    for buffer, box in below.items():
        if buffer not in before:
            count = here[buffer][kind]
            total += count
            if buffer in writes:
                cycles += count * (prices.write + box[2] * prices.scattered_write)
            else:
                cycles += count * (prices.read + box[2] * prices.scattered_read)
    return total, cycles


_WRITTEN = Prices(0.0, 1.0, 0.0, 0.0)


def lines_by_buffer(nest: LoopNest, blocks: list[Touched], capacity: float) -> dict[int, float]:
    """Lines of each buffer (by handle) that enter a cache of `capacity` lines in one warm call.

    They add up to what `LoopTree.traffic` says. Slower than that: one pass for each buffer.
    """
    found: dict[int, float] = {}
    for buffer in dict.fromkeys([b for mine in blocks for b in (*mine.reads, *mine.writes)]):
        tree = LoopTree(nest, [mine._replace(traffic={}) for mine in blocks])
        tree.writes = {buffer}  # so that the price of written lines counts those of this buffer
        found[buffer] = tree.traffic((0, LINES, capacity, _WRITTEN))[1]
    return found


def fitting_lines(touched: Touched, capacity: float) -> float:
    """Lines that the outermost loop of a block touches whose footprint fits `capacity` lines."""
    fitting = [lines for lines in touched.totals[LINES] if lines <= capacity]
    return fitting[-1] if fitting else touched.totals[LINES][0]
