"""`MultiLevelTile`: a block's loops into the levels of registers and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import closest, closest_lanes, divisors, has_reuse, own_loops
from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import SERIAL, Block
from tirgym.harness.tensorir.rule_limits import MAX_LOOPS
from tirgym.harness.transforms.base import SlotLimits, Transform
from tirgym.harness.transforms.reorder import Reorder
from tirgym.harness.transforms.split import Split

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["MultiLevelTile"]

TILES = (
    (1, 16, 8),
    (1, 64, 16),
    (2, 32, 8),
    (2, 64, 4),
    (4, 16, 4),
    (4, 16, 16),
    (4, 32, 8),
    (6, 16, 8),
    (8, 16, 4),
    (8, 32, 8),
)
"""Rows and columns of the innermost tile, and terms of the sum that it takes at a time: from one
row of long vectors to as many accumulators as 32 vector registers hold."""
MAX_FACTOR = 64


@dataclass(frozen=True, slots=True)
class MultiLevelTile(BlockMacro):
    """Tile the loops that a block has to itself, innermost `rows` x `columns`, `terms` of a sum.

        for i, j, k in grid(256, 256, 64):     for i0, j0, i1, j1 in grid(8, 8, 2, 2):
            C[i, j] += A[i, k] * B[k, j]   →       for k0 in range(8):
                                                       for i2, j2, k1 in grid(4, 1, 8):
                                                           for i3, j3 in grid(4, 16):
                                                               C[…] += A[…] * B[…]

    Reductions that read elements several times are laid out SSRSRS, other reductions SRS, maps SS
    (S: the spatial loops, R: those reduced over; Zheng et al., "Ansor", OSDI 2020, section 4.1).
    Each factor is the divisor of what is left of its loop that is closest to the one asked for;
    columns prefer whole vectors. Refused where nothing would be split, where loops are marked, and
    where their order has a meaning: recomputed, scanning and index-dependent blocks.
    """

    block: int
    rows: int
    columns: int
    terms: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[MultiLevelTile]:
        """Every block with a small table of tiles."""
        for block in range(limits.max_blocks):
            for tile in TILES:
                yield cls(block, *tile)

    def play(self, draft: Draft) -> Draft:
        """Split from the inside out; each new loop sinks to its level at once."""
        self.found(draft)
        steps = self._steps(draft)
        if not steps:
            raise self.refusal("no loop of its own would be split, or they must stay as they are")
        return draft.then(*steps)

    def verdict(self, draft: Draft) -> bool:
        """Splits of plain loops into divisors, and swaps above a plain block, always apply."""
        splits = sum(type(step) is Split for step in self._steps(draft))
        return splits > 0 and len(draft.program.nest.loops) + splits <= MAX_LOOPS

    def _steps(self, draft: Draft) -> tuple[Transform, ...]:
        """The splits and swaps; empty if there is nothing to tile."""
        facts = draft.program.facts
        nest = draft.known(("nest", self.block), lambda: _perfect_nest(facts, self.block))
        if nest is None:
            return ()
        return _tiling(*nest, (self.rows, self.columns, self.terms))


def _perfect_nest(
    facts: Facts, index: int
) -> tuple[int, str, tuple[int, ...], tuple[bool, ...]] | None:
    """First loop, layout, extents, and which are reduced over; None if it must stay as it is."""
    block = facts.blocks[index]
    own = own_loops(facts.nest, block)
    if not own or not _plain(facts, block, own):
        return None
    reduced = tuple(bool(facts.reduced[index] >> i & 1) for i in own)
    if all(reduced):
        return None
    layout = ("SSRSRS" if has_reuse(block) else "SRS") if any(reduced) else "SS"
    return own[0], layout, tuple(facts.extents[i] for i in own), reduced


def _plain(facts: Facts, block: Block, own: tuple[int, ...]) -> bool:
    """Whether the loops are unmarked and may take any order."""
    view, index = facts.views[block.index], block.index
    if not facts.once[index] or not facts.flags[index][0]:
        return False
    if view.ordered or not view.known_iters:
        return False
    for i in own:
        loop = facts.loops[i]
        both = loop.var in view.spatial_vars and loop.var in view.reduce_vars
        if loop.kind != SERIAL or loop.annotated or both or loop.var in view.tangled:
            return False
    return all(facts.extents[i] > 0 for i in own)


@lru_cache(maxsize=4096)
def _tiling(
    first: int,
    layout: str,
    extents: tuple[int, ...],
    reduced: tuple[bool, ...],
    tile: tuple[int, int, int],
) -> tuple[Transform, ...]:
    """The steps that tile the perfect nest that begins at loop `first`; () without a split."""
    kinds = ["R" if r else "S" for r in reduced]
    outermost = [layout.index(kind) for kind in kinds]
    from_last = [kinds[n + 1 :].count(kind) for n, kind in enumerate(kinds)]
    labels = [(level, n) for n, level in enumerate(outermost)]
    sizes = list(extents)
    steps = _sink(first, labels, sizes)
    split = False
    for level in reversed(range(len(layout))):
        for n in reversed(range(len(kinds))):
            if kinds[n] != layout[level] or outermost[n] == level:
                continue
            if (outermost[n], n) not in labels:
                continue  # an inner level took all of it
            at = labels.index((outermost[n], n))
            wanted = _goal(layout, level, tile, reduced[n], from_last[n])
            factor = _factor(sizes[at], wanted, level == len(layout) - 1 and from_last[n] == 0)
            if factor == sizes[at]:
                labels[at] = (level, n)
            elif factor > 1:
                split = True
                steps.append(Split(first + at, factor))
                sizes[at] //= factor
                labels.insert(at + 1, (level, n))
                sizes.insert(at + 1, factor)
            steps += _sink(first, labels, sizes)
    return tuple(steps) if split else ()


def _goal(
    layout: str, level: int, tile: tuple[int, int, int], reduces: bool, from_last: int
) -> int:
    """The factor to come close to; `from_last` counts the axes of its kind from the end."""
    rows, columns, terms = tile
    if reduces:
        return terms if from_last == 0 else 1
    if level == len(layout) - 1:
        return (columns, rows)[from_last] if from_last < 2 else 1
    if level == layout.index("S", 1):
        return 2 if from_last < 2 else 1
    return 4 if from_last == 1 else 1


def _factor(extent: int, wanted: int, vectors: bool) -> int:
    """The divisor of `extent` closest to `wanted`."""
    if wanted == 1:
        return 1
    factors = divisors(extent, MAX_FACTOR)
    return factors[
        closest_lanes(factors, max(1, wanted // 2)) if vectors else closest(factors, wanted)
    ]


def _sink(first: int, labels: list[tuple[int, int]], sizes: list[int]) -> list[Transform]:
    """Swaps that sort the loops by label, and `labels` and `sizes` along with them."""
    steps: list[Transform] = []
    for end in range(1, len(labels)):
        at = end
        while at > 0 and labels[at] < labels[at - 1]:
            steps.append(Reorder(first + at - 1))
            labels[at - 1], labels[at] = labels[at], labels[at - 1]
            sizes[at - 1], sizes[at] = sizes[at], sizes[at - 1]
            at -= 1
    return steps
