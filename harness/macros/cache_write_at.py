"""`CacheWriteAt`: accumulate in a small buffer, and copy it out inside the tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.macros.places import is_plain_stage, level_loop
from tirgym.harness.tensorir.rule_regions import covers_box
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.cache_write import CacheWrite
from tirgym.harness.transforms.reverse_compute_at import ReverseComputeAt

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["CacheWriteAt"]

LEVELS = (1, 2, 3, 4)
"""Loops between the copy and the outermost reduction, plus one."""


@dataclass(frozen=True, slots=True)
class CacheWriteAt(BlockMacro):
    """Stage what a block writes, and copy it out `level` loops outside of its reduction.

        for i, j in grid(16, 3):               for i, j in grid(16, 3):
            for k, l in grid(32, 8):               for k, l in grid(32, 8):
                C[i, j*8+l] += A[…] * B[…] →           C_global[i, j*8+l] += A[…] * B[…]
                                                   for l in range(8):
                                                       C[i, j*8+l] = C_global[i, j*8+l]

    The example is level 1. Level 2 copies in the next loop outwards, and so on; a block that
    reduces over no loop of its own counts from its innermost loop. Refused where `CacheWrite` is,
    without such a loop, and where the tile is no dense box.
    """

    block: int
    level: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[CacheWriteAt]:
        """Every block with each level."""
        for block in range(limits.max_blocks):
            for level in LEVELS:
                yield cls(block, level)

    def play(self, draft: Draft) -> Draft:
        """CacheWrite, then ReverseComputeAt of the copy, which is the only reader of the cache."""
        self.found(draft)
        loop = level_loop(draft, self.block, self.level)
        if loop is None or self.level < 1:
            raise self.refusal("the block has no loop of its own at that level")
        staged, copy = self._staged(draft)
        return staged.then(ReverseComputeAt(copy, loop))

    def verdict(self, draft: Draft) -> bool:
        """Certain unless the block is recomputed; then asked of the staged program, for all levels."""
        facts = draft.program.facts
        loop = level_loop(draft, self.block, self.level)
        if loop is None or not draft.legal(CacheWrite(0)) >> self.block & 1:
            return False
        if not covers_box(facts, self.block, loop):
            return False
        if is_plain_stage(facts) and facts.once[self.block]:
            frozen = facts.around(facts.vectorized | facts.reduced[self.block]) >> loop & 1
            return not frozen and not facts.views[self.block].ordered
        staged, copy = self._staged(draft)
        return bool(staged.legal(ReverseComputeAt(copy, 0)) >> loop & 1)

    def _staged(self, draft: Draft) -> tuple[Draft, int]:
        """The draft after `CacheWrite`, with the number of the copy; that of the block stays."""
        staged = draft.then(CacheWrite(self.block))
        facts = staged.program.facts
        cache = facts.blocks[self.block].facts.writes[0].buffer.handle
        return staged, next(reader for reader in facts.readers[cache] if reader != self.block)
