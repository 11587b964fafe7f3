"""`Reorder`: swap a loop with the loop directly inside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Reorder"]


@dataclass(frozen=True, slots=True)
class Reorder(ScheduleTransform):
    """Swap a loop with the loop that is its whole body.

        for i in range(16):                for j in range(32):
            for j in range(32):     →          for i in range(16):
                B[i, j] = A[i, j]                  B[i, j] = A[i, j]

    Any order of a perfect nest is a sequence of such swaps. Refused when the body is anything but
    one loop, when a block below has a binding that the compiler cannot see as affine, and when
    either loop is vectorized.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Reorder]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleReorder(schedule, [at.loop(self.loop + 1), at.loop(self.loop)])

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
