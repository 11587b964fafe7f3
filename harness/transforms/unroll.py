"""`Unroll`: repeat the body of a loop in the code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Unroll"]


@dataclass(frozen=True, slots=True)
class Unroll(ScheduleTransform):
    """Mark a loop as unrolled: the code generator repeats its body.

        for i in range(4):                 for i in T.unroll(4):
            B[i] = A[i]             →          B[i] = A[i]

    Refused when the product of the unrolled extents around any block would pass 64, on a loop that
    is unrolled already, vectorized, parallel or bound to a thread.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Unroll]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleUnroll(schedule, at.loop(self.loop))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
