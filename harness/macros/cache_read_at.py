"""`CacheReadAt`: copy what a tile reads into a small buffer inside the tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.macros.places import copy_fits, is_plain_stage, level_loop
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.cache_read import CacheRead
from tirgym.harness.transforms.compute_at import ComputeAt

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["CacheReadAt", "staged_read"]

LEVELS = (0, 1, 2, 3)
"""Level 0 copies inside the outermost loop that is reduced over, the others further out."""


def staged_read(draft: Draft, block: int, read: int) -> tuple[Draft, int, int]:
    """The draft after `CacheRead`, with the numbers of the copy and of the block afterwards."""
    staged = draft.then(CacheRead(block, read))
    before, facts = draft.program.facts, staged.program.facts
    cache = next(buffer for buffer in facts.writers if buffer not in before.writers)
    (copy,) = facts.writers[cache]
    return staged, copy, block + (copy <= block)


@dataclass(frozen=True, slots=True)
class CacheReadAt(BlockMacro):
    """Stage the buffer of read region `read`, copied `level` loops outside of the reduction.

        for i, j, k in grid(16, 24, 32):       for i, j in grid(16, 24):
            C[i, j] += A[i, k] * B[k, j]   →       for k in range(32):
                                                       A_global[i, k] = A[i, k]
                                                   for k in range(32):
                                                       C[i, j] += A_global[i, k] * B[k, j]

    The example is read 0 (of A) at level 1. Refused where `CacheRead` is, without a loop at that
    level, and where `ComputeAt` is: on two thousand copies of one element, say.
    """

    block: int
    read: int
    level: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[CacheReadAt]:
        """Every block with its first read regions and each level."""
        for block in range(limits.max_blocks):
            for read in range(limits.max_reads):
                for level in LEVELS:
                    yield cls(block, read, level)

    def play(self, draft: Draft) -> Draft:
        """CacheRead, then ComputeAt of the copy."""
        self.found(draft)
        staged, copy, reader = staged_read(draft, self.block, self.read)
        loop = level_loop(staged, reader, self.level)
        if loop is None or self.level < 0:
            raise self.refusal("the block has no loop of its own at that level")
        return staged.then(ComputeAt(copy, loop))

    def verdict(self, draft: Draft) -> bool:
        """Certain where the work of the copy is, and nothing else could speak against it; else asked
        of the staged program, for all levels. Never where another block reads the buffer too."""
        facts = draft.program.facts
        loop = level_loop(draft, self.block, self.level)
        if loop is None or not draft.legal(CacheRead(0, self.read)) >> self.block & 1:
            return False
        block = facts.blocks[self.block]
        read = block.facts.reads[self.read]
        if len(facts.readers[read.buffer.handle]) > 1:
            return False
        fits = copy_fits(facts, block, read, loop) if self._is_plain(facts, block, loop) else None
        if fits is not None:
            return fits
        staged, copy, reader = staged_read(draft, self.block, self.read)
        loop = level_loop(staged, reader, self.level)
        return loop is not None and bool(staged.legal(ComputeAt(copy, 0)) >> loop & 1)

    def _is_plain(self, facts: Facts, block: Block, loop: int) -> bool:
        """Whether nothing but the work could speak against moving the copy."""
        read = block.facts.reads[self.read]
        writers = facts.writers.get(read.buffer.handle, ())
        return (
            is_plain_stage(facts)
            and not facts.vectorized & (facts.up[loop] | facts.below[loop])
            and self.block not in writers
            and all(facts.once[p] and not facts.views[p].ordered for p in writers)
            and not any(facts.around(facts.reduced[p]) >> loop & 1 for p in writers)
            and all(start.exact for start, _ in read.region)
        )
