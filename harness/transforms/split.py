"""`Split`: one loop into two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Split"]


@dataclass(frozen=True, slots=True)
class Split(ScheduleTransform):
    """Replace a loop by two nested loops, the inner one of extent `factor`; both are serial.

        for i in range(128):               for i_0 in range(16):
            B[i] = A[i]             →          for i_1 in range(8):
                                                   B[i_0 * 8 + i_1] = A[i_0 * 8 + i_1]

    Refused when the factor does not divide the extent or leaves an outer loop of one iteration,
    on a loop that carries an annotation, is vectorized, or is bound to a thread.
    """

    loop: int
    factor: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Split]:
        """Every loop with every factor."""
        for loop in range(limits.max_loops):
            for factor in limits.factors:
                yield cls(loop, factor)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at.made(*ffi.ScheduleSplit(schedule, at.loop(self.loop), [None, self.factor], True, False))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
