"""`StorageAlign`: pad the rows of an intermediate buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["StorageAlign"]

ALIGNMENTS = ((16, 0), (64, 16))
"""Factor and offset, in elements, that the action table offers."""


@dataclass(frozen=True, slots=True)
class StorageAlign(ScheduleTransform):
    """Pad the rows of the intermediate buffer that a block writes: row stride ≡ `offset` (mod `factor`).

        with block("B"):                   with block("B"):
            B[i, j] = A[i, j]       →          block_attr({"buffer_dim_align": [[0, 0, 16, 8]]})
                                               B[i, j] = A[i, j]

    The stride, in elements, is that of the last dimension but one; rows then start in other cache
    sets. Refused on outputs, on buffers of one dimension or with several writers, and on blocks
    that carry an annotation already.
    """

    block: int
    factor: int
    offset: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[StorageAlign]:
        """Every block with two alignments."""
        for block in range(limits.max_blocks):
            for factor, offset in ALIGNMENTS:
                yield cls(block, factor, offset)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        axis = len(at.nest.blocks[self.block].facts.writes[0].buffer.shape) - 2
        block = at.block(self.block)
        ffi.ScheduleStorageAlign(schedule, block, 0, axis, self.factor, self.offset)

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
