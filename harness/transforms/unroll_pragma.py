"""`UnrollPragma`: let the code generator unroll the small loops below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["UnrollPragma"]

MAX_STEPS = (16, 64)
"""Limits that the action table offers."""


@dataclass(frozen=True, slots=True)
class UnrollPragma(ScheduleTransform):
    """Ask the code generator to unroll loops below that run at most `max_step` iterations in all.

        for i in range(128):               for i in range(128, annotations={
            for j in range(4):                 "pragma_auto_unroll_max_step": 16,
                B[i, j] = A[i, j]   →          "pragma_unroll_explicit": 1}):
                                               for j in range(4):
                                                   B[i, j] = A[i, j]

    Refused on a loop inside another one or that is not serial, and where a loop carries a pragma
    already. Afterwards the loop is neither split nor fused.
    """

    loop: int
    max_step: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[UnrollPragma]:
        """Every loop with two limits."""
        for loop in range(limits.max_loops):
            for max_step in MAX_STEPS:
                yield cls(loop, max_step)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        at_loop = at.loop(self.loop)
        ffi.ScheduleAnnotate(schedule, at_loop, "pragma_auto_unroll_max_step", self.max_step)
        ffi.ScheduleAnnotate(schedule, at_loop, "pragma_unroll_explicit", 1)

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
