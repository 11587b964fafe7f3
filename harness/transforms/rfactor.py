"""`RFactor`: turn a reduction loop into partial results and a final reduction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["RFactor"]


@dataclass(frozen=True, slots=True)
class RFactor(ScheduleTransform):
    """Split a reduction along a loop into partial results, made in parallel, and their reduction.

        for i in range(128):               for i in range(8):
            C[0] += A[i]            →          for j in range(16):
                                                   C_rf[i] += A[i * 16 + j]
                                           for i in range(8):
                                               C[0] += C_rf[i]

    The example splits first; alone, `RFactor` makes one partial result per iteration. Refused unless
    exactly one reduction block lies below the loop, the loop reduces, and nothing else shares the
    block's loops.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[RFactor]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at.made(ffi.ScheduleRFactor(schedule, at.loop(self.loop), 0))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
