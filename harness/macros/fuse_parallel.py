"""`FuseParallel`: spread the outer loops of a nest over the threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.fuse import Fuse
from tirgym.harness.transforms.parallel import Parallel

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["FuseParallel"]

COUNTS = (1, 2, 3)
"""Loops that are fused."""


@dataclass(frozen=True, slots=True)
class FuseParallel(BlockMacro):
    """Fuse the `count` outer loops of the nest that begins with a block, and run it in parallel.

        for i in range(16):                    for f in T.parallel(384):
            for j in range(24):            →       for k in range(32):
                for k in range(32):                    C[f // 24, f % 24] += A[…] * B[…]
                    C[i, j] += A[…] * B[…]

    The example fuses 2. Refused on a target of one thread, unless the block is the first of its
    nest, and where `Fuse` or `Parallel` is.
    """

    block: int
    count: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[FuseParallel]:
        """Every block with each number of loops."""
        for block in range(limits.max_blocks):
            for count in COUNTS:
                yield cls(block, count)

    def play(self, draft: Draft) -> Draft:
        """Fuse from the outside, then Parallel."""
        block = self.found(draft)
        root = block.chain[0] if block.chain else -1
        if root < 0 or draft.program.nest.loops[root].blocks[0] != self.block or self.count < 1:
            raise self.refusal("it is not the first block of a loop nest")
        return draft.then(*[Fuse(root)] * (self.count - 1), Parallel(root))

    def verdict(self, draft: Draft) -> bool | None:
        """One loop is certain, and so is one thread."""
        facts = draft.program.facts
        block = facts.blocks[self.block]
        root = block.chain[0] if block.chain else -1
        if facts.target.num_threads < 2 or root < 0 or facts.loops[root].blocks[0] != self.block:
            return False
        if self.count == 1:
            return bool(draft.legal(Parallel(0)) >> root & 1)
        return None if draft.legal(Fuse(0)) >> root & 1 else False
