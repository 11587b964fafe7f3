"""`FuseProducers`: compute what a block reads inside one of its loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.compute_at import ComputeAt

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["FuseProducers"]

DEPTHS = (1, 2, 3)
"""Loops around a block, counted from the outside."""


@dataclass(frozen=True, slots=True)
class FuseProducers(BlockMacro):
    """Move the blocks that a block depends on into the loop at `depth`, as far as that is legal.

        for i, k in grid(8, 32):               for i in range(8):
            S[i] += A[i, k]                        for k in range(32):
        for i, j in grid(8, 32):           →           S[i] += A[i, k]
            B[i, j] = A[i, j] / S[i]               for j in range(32):
                                                       B[i, j] = A[i, j] / S[i]

    The example is depth 1. The nearest go first, so that what they depend on can follow them.
    Refused where nothing may move there.
    """

    block: int
    depth: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[FuseProducers]:
        """Every block with each depth."""
        for block in range(limits.max_blocks):
            for depth in DEPTHS:
                yield cls(block, depth)

    def play(self, draft: Draft) -> Draft:
        """ComputeAt of one block after the other, the last in program order first."""
        self.found(draft)
        following = self._next(draft)
        if following is None:
            raise self.refusal("nothing that the block depends on may move there")
        while following is not None:
            draft = draft.then(following)
            following = self._next(draft)
        return draft

    def verdict(self, draft: Draft) -> bool:
        """Whether something may move: every step is legal when it is chosen."""
        return self._next(draft) is not None

    def _next(self, draft: Draft) -> ComputeAt | None:
        """The next move. The block keeps its number: producers stay in front of it."""
        facts = draft.program.facts
        chain = facts.blocks[self.block].chain
        if not 1 <= self.depth <= len(chain):
            return None
        loop = chain[self.depth - 1]
        for block in reversed(_ancestors(facts, self.block)):
            if not facts.chain[block] >> loop & 1 and draft.legal(ComputeAt(block, 0)) >> loop & 1:
                return ComputeAt(block, loop)
        return None


def _ancestors(facts: Facts, block: int) -> list[int]:
    """Blocks that `block` depends on, ascending."""
    found: set[int] = set()
    pending = [block]
    while pending:
        for producer in facts.producers[pending.pop()]:
            if producer not in found and producer != block:
                found.add(producer)
                pending.append(producer)
    return sorted(found)
