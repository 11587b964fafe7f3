"""`Vectorize`: run the iterations of a loop as lanes of vector instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Vectorize"]


@dataclass(frozen=True, slots=True)
class Vectorize(ScheduleTransform):
    """Mark a loop as vectorized: its iterations become the lanes of vector instructions.

        for i in range(8):                 for i in T.vectorized(8):
            B[i] = A[i]             →          B[i] = A[i]

    Refused unless the body is exactly one block that the loop indexes, with independent
    iterations, and the extent is at most 64; afterwards the loop and its body are frozen.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Vectorize]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleVectorize(schedule, at.loop(self.loop))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
