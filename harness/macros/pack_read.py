"""`PackRead`: copy what a block reads into the order in which its lanes read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import own_loops
from tirgym.harness.macros.base import BlockMacro
from tirgym.harness.macros.cache_read_at import staged_read
from tirgym.harness.macros.places import reads_all
from tirgym.harness.tensorir.facts import Facts
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.rule_storage import MAX_RANK
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.transforms.cache_read import CacheRead
from tirgym.harness.transforms.transform_layout import TransformLayout

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["PackRead"]

FACTORS = (8, 16, 32)
"""Elements of a panel row: one to four vectors of float32."""


@dataclass(frozen=True, slots=True)
class PackRead(BlockMacro):
    """Stage read region `read` in panels of `factor` elements along the innermost map loop.

        for i, j, k in grid(16, 32, 64):       for k, j in grid(64, 32):
            C[i, j] += A[i, k] * B[k, j]   →       B_global[j // 8, k, j % 8] = B[k, j]
                                               for i, j, k in grid(16, 32, 64):
                                                   C[i, j] += A[i, k] * B_global[j // 8, k, j % 8]

    The example is read 1 (of B) with factor 8. The packed dimension is the one that the innermost
    spatial loop of the block moves in; it becomes panels, each a dense matrix. Refused where
    `CacheRead` is, where no loop of the block's own moves one dimension alone, and where the factor
    does not divide it.
    """

    block: int
    read: int
    factor: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[PackRead]:
        """Every block with its first read regions and each factor."""
        for block in range(limits.max_blocks):
            for read in range(limits.max_reads):
                for factor in FACTORS:
                    yield cls(block, read, factor)

    def play(self, draft: Draft) -> Draft:
        """CacheRead; bring the dimension before the last if it is last; then split it."""
        axis = self._axis(draft.program.facts, self.found(draft))
        if axis is None:
            raise self.refusal("no loop of its own moves one dimension of that region alone")
        staged, copy, _ = staged_read(draft, self.block, self.read)
        rank = len(staged.program.nest.blocks[copy].facts.writes[0].buffer.shape)
        if axis == rank - 1 and rank > 1:
            axis -= 1
            staged = staged.then(TransformLayout(copy, axis, 1))
        return staged.then(TransformLayout(copy, axis, self.factor))

    def verdict(self, draft: Draft) -> bool | None:
        """Certain where the copy has the shape of the buffer, and no reader is particular."""
        facts = draft.program.facts
        block = facts.blocks[self.block]
        axis = draft.known(("axis", self.block, self.read), lambda: self._axis(facts, block))
        if axis is None:
            return False
        read = block.facts.reads[self.read]
        extent = read.buffer.shape[axis]
        if extent % self.factor or extent <= self.factor:
            return False
        if not draft.legal(CacheRead(0, self.read)) >> self.block & 1:
            return False
        views = [facts.views[reader] for reader in facts.readers[read.buffer.handle]]
        plain = not any(v.intrinsic or read.buffer.handle in v.mirrored for v in views)
        small = len(read.buffer.shape) < MAX_RANK
        return True if plain and small and not facts.aligned and reads_all(block, read) else None

    def _axis(self, facts: Facts, block: Block) -> int | None:
        """The dimension that the innermost spatial loop moves, of those that move one alone."""
        reads = block.facts.reads
        if not 0 <= self.read < len(reads):
            return None
        for loop in reversed(own_loops(facts.nest, block)):
            if facts.reduced[block.index] >> loop & 1:
                continue
            var = facts.loops[loop].var
            moved = {
                handle
                for handle, binding in zip(block.facts.iter_handles, block.bindings, strict=True)
                if var in binding.coefficients
            }
            axes = [
                axis
                for axis, (start, _) in enumerate(reads[self.read].region)
                if not moved.isdisjoint(start.coefficients)
            ]
            if len(axes) == 1:
                return axes[0]
        return None
