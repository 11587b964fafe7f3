"""`CacheWrite`: let a block write a buffer of its own, which is then copied out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["CacheWrite"]


@dataclass(frozen=True, slots=True)
class CacheWrite(ScheduleTransform):
    """Let a block write into a new intermediate buffer, copied to the old one by a new block.

        for i in range(128):               for i in range(128):
            B[i] = f(A[i])          →          B_global[i] = f(A[i])
                                           for i in range(128):
                                               B[i] = B_global[i]

    Refused when another block writes the same buffer, or the program has as many blocks as the
    caps allow.
    """

    block: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[CacheWrite]:
        """Every block."""
        for block in range(limits.max_blocks):
            yield cls(block)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at.made(ffi.ScheduleCacheWrite(schedule, at.block(self.block), 0, "global", []))

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
