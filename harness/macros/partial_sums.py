"""`PartialSums`: a reduction as partial results that are vector lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import own_loops
from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.rule_limits import MAX_BUFFER_BYTES
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.rfactor import RFactor
from tirgym.harness.transforms.split import Split

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["PartialSums"]

LANES = (8, 16, 32)
"""Partial results: one to four vectors of float32."""


@dataclass(frozen=True, slots=True)
class PartialSums(BlockMacro):
    """Split `lanes` iterations off the last loop that a block reduces over, each its own result.

        for i, k in grid(8, 128):              for l in range(16):
            C[i] += A[i, k]                →       for i, k in grid(8, 8):
                                                       C_rf[i, l] += A[i, k * 16 + l]
                                               for l, i in grid(16, 8):
                                                   C[i] += C_rf[i, l]

    A loop of just that extent is not split. Refused where `Split` or `RFactor` is, and where the
    block reduces over no loop of its own.
    """

    block: int
    lanes: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[PartialSums]:
        """Every block with each number of lanes."""
        for block in range(limits.max_blocks):
            for lanes in LANES:
                yield cls(block, lanes)

    def play(self, draft: Draft) -> Draft:
        """Split, unless the extent fits, and RFactor."""
        facts = draft.program.facts
        loop = _last_reduced(facts, self.found(draft))
        if loop is None:
            raise self.refusal("the block reduces over no loop of its own")
        if facts.extents[loop] == self.lanes:
            return draft.then(RFactor(loop))
        return draft.then(Split(loop, self.lanes), RFactor(loop + 1))

    def verdict(self, draft: Draft) -> bool | None:
        """Certain unless memory alone speaks against as many results as iterations."""
        facts = draft.program.facts
        loop = _last_reduced(facts, facts.blocks[self.block])
        if loop is None or not facts.blocks[self.block].facts.has_init:
            return False
        if facts.extents[loop] == self.lanes:
            return bool(draft.legal(RFactor(0)) >> loop & 1)
        if not draft.legal(Split(0, self.lanes)) >> loop & 1:
            return False
        if draft.legal(RFactor(0)) >> loop & 1:
            return True
        written = sum(w.buffer.nbytes for w in facts.blocks[self.block].facts.writes)
        # fewer results may fit where one for each iteration takes too much memory
        return None if written * facts.extents[loop] > MAX_BUFFER_BYTES else False


def _last_reduced(facts: Facts, block: Block) -> int | None:
    found = [i for i in own_loops(facts.nest, block) if facts.reduced[block.index] >> i & 1]
    return found[-1] if found else None
