"""`Parallel`: run the iterations of a loop on several threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Parallel"]


@dataclass(frozen=True, slots=True)
class Parallel(ScheduleTransform):
    """Mark a loop as parallel: its iterations are spread over the threads of the target.

        for i in range(128):               for i in T.parallel(128):
            B[i] = A[i]             →          B[i] = A[i]

    Refused on a target of one thread, below or above another parallel loop, on a loop inside
    another one, and unless the iterations are independent.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Parallel]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleParallel(schedule, at.loop(self.loop))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
