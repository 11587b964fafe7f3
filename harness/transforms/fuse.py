"""`Fuse`: two nested loops into one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Fuse"]


@dataclass(frozen=True, slots=True)
class Fuse(ScheduleTransform):
    """Replace a loop and the loop that is its whole body by one serial loop.

        for i in range(16):                for f in range(512):
            for j in range(32):     →          B[f // 32, f % 32] = A[f // 32, f % 32]
                B[i, j] = A[i, j]

    Refused when the body is anything but one loop, when either loop carries an annotation, is
    vectorized, or is bound to a thread.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Fuse]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at.made(ffi.ScheduleFuse(schedule, [at.loop(self.loop), at.loop(self.loop + 1)], True))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
