"""`ComputeAt`: move a block into a loop of its consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["ComputeAt"]


@dataclass(frozen=True, slots=True)
class ComputeAt(ScheduleTransform):
    """Move a block into a loop of its consumers, so that each iteration makes what it needs.

        for i, j in grid(16, 32):          for i in range(16):
            B[i, j] = f(A[i, j])               for j in range(32):
        for i, j in grid(16, 32):   →              B[i, j] = f(A[i, j])
            C[i, j] = g(B[i, j])               for j in range(32):
                                                   C[i, j] = g(B[i, j])

    Refused when a consumer lies outside the loop, when a producer comes too late, on outputs, under
    a vectorized loop, under a loop that a producer reduces over, and when the program would do more
    than 32 times the work of the unscheduled one.
    """

    block: int
    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[ComputeAt]:
        """Every block with every loop."""
        for block in range(limits.max_blocks):
            for loop in range(limits.max_loops):
                yield cls(block, loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleComputeAt(schedule, at.block(self.block), at.loop(self.loop), False, -1)

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
