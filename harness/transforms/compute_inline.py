"""`ComputeInline`: write a block's expression into its consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["ComputeInline"]


@dataclass(frozen=True, slots=True)
class ComputeInline(ScheduleTransform):
    """Replace every read of a block's result by the expression that the block computes.

        for i in range(128):
            B[i] = A[i] * 2.0       →      for i in range(128):
        for i in range(128):                   C[i] = A[i] * 2.0 + 1.0
            C[i] = B[i] + 1.0

    Refused for reductions, outputs, blocks that do not write each element once, and blocks under or
    feeding a vectorized loop.
    """

    block: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[ComputeInline]:
        """Every block."""
        for block in range(limits.max_blocks):
            yield cls(block)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleComputeInline(schedule, at.block(self.block))

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
