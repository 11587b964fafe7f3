"""`CacheRead`: stage what a block reads in a buffer of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["CacheRead"]


@dataclass(frozen=True, slots=True)
class CacheRead(ScheduleTransform):
    """Copy a buffer into a new intermediate buffer, which the block then reads instead.

        for i in range(128):               for i in range(128):
            C[i] = f(A[i])          →          A_global[i] = A[i]
                                           for i in range(128):
                                               C[i] = f(A_global[i])

    `read` is the position of the buffer among the read regions of the block. Refused when the
    region is written by more than one block, or only partly, or the program has as many blocks as
    the caps allow.
    """

    block: int
    read: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[CacheRead]:
        """Every block with its first read regions."""
        for block in range(limits.max_blocks):
            for read in range(limits.max_reads):
                yield cls(block, read)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at.made(ffi.ScheduleCacheRead(schedule, at.block(self.block), self.read, "global", []))

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
