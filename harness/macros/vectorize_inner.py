"""`VectorizeInner`: vector lanes for the innermost loop of a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import own_loops
from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.rule_loops import colliding_lanes
from tirgym.harness.tensorir.shortcuts import SHORTCUTS
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.split import Split
from tirgym.harness.transforms.vectorize import Vectorize

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["VectorizeInner"]

LANES = (4, 8, 16, 32, 64)
"""Powers of two: LLVM takes vectors of other lengths apart."""


@dataclass(frozen=True, slots=True)
class VectorizeInner(BlockMacro):
    """Split `lanes` iterations off the innermost loop that a block has to itself; vectorize them.

        for i, j in grid(16, 32):              for i, j in grid(16, 4):
            B[i, j] = A[i, j] * 2.0        →       for v in T.vectorized(8):
                                                       B[i, j * 8 + v] = A[i, j * 8 + v] * 2.0

    A loop of just that extent is not split. Refused where `Split` or `Vectorize` is: where the
    lanes do not divide the loop, and where its iterations depend on each other.
    """

    block: int
    lanes: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[VectorizeInner]:
        """Every block with each number of lanes."""
        for block in range(limits.max_blocks):
            for lanes in LANES:
                yield cls(block, lanes)

    def play(self, draft: Draft) -> Draft:
        """Split, unless the extent fits, and Vectorize."""
        self.found(draft)
        loop = _innermost(draft, self.block)
        if loop is None:
            raise self.refusal("the block has no loop to itself")
        if draft.program.facts.extents[loop] == self.lanes:
            return draft.then(Vectorize(loop))
        return draft.then(Split(loop, self.lanes), Vectorize(loop + 1))

    def verdict(self, draft: Draft) -> bool | None:
        """Certain without a split, and where both halves move the block as the whole did."""
        facts = draft.program.facts
        loop = _innermost(draft, self.block)
        if loop is None:
            return False
        if facts.extents[loop] == self.lanes:
            return bool(draft.legal(Vectorize(0)) >> loop & 1)
        if not draft.legal(Split(0, self.lanes)) >> loop & 1:
            return False
        return draft.known(("lanes", loop), lambda: _takes_lanes(facts, loop))


def _innermost(draft: Draft, block: int) -> int | None:
    """The innermost loop that `block` has to itself."""
    nest = draft.program.nest
    own = draft.known(("own", block), lambda: own_loops(nest, nest.blocks[block]))
    return own[-1] if own else None


def _takes_lanes(facts: Facts, loop: int) -> bool | None:
    """Whether part of `loop` may become lanes; None where it moves an iterator by division."""
    var, here = facts.loops[loop].var, 1 << loop
    for binding in facts.blocks[facts.loops[loop].blocks[0]].bindings:
        if var in binding.fuzzy:
            return None
    accepted, _ = SHORTCUTS["Vectorize"](facts, Vectorize(loop), here)
    return bool(accepted & facts.over_block & ~colliding_lanes(facts, Vectorize(loop), here) & here)
