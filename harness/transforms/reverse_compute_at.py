"""`ReverseComputeAt`: move a block into a loop of its producers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["ReverseComputeAt"]


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(ScheduleTransform):
    """Move a block into a loop of its producers, so that each iteration uses what was just made.

        for i, j in grid(16, 32):          for i in range(16):
            B[i, j] = f(A[i, j])               for j in range(32):
        for i, j in grid(16, 32):   →              B[i, j] = f(A[i, j])
            C[i, j] = g(B[i, j])               for j in range(32):
                                                   C[i, j] = g(B[i, j])

    Refused for a block without producer, when a producer lies outside the loop, when a read has an
    offset, when the producer covers no dense box under the loop, under a vectorized loop, under a
    loop that a producer reduces over, and for a reduction under a loop shared with its consumers.
    """

    block: int
    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[ReverseComputeAt]:
        """Every block with every loop."""
        for block in range(limits.max_blocks):
            for loop in range(limits.max_loops):
                yield cls(block, loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleReverseComputeAt(schedule, at.block(self.block), at.loop(self.loop), False, -1)

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
