"""`Bind`: run the iterations of a loop on GPU blocks or threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["Bind"]

THREADS = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")
"""Thread axes that the action table offers. TVM's virtual threads, which it calls legacy, are not among
them: a serial loop inside the bound ones says the same."""


@dataclass(frozen=True, slots=True)
class Bind(ScheduleTransform):
    """Bind a loop to a thread axis of a GPU.

        for i in range(128):               for i in T.thread_binding(128, "threadIdx.x"):
            B[i] = A[i]             →          B[i] = A[i]

    Refused on backends without thread axes, when the outermost loop of the nest is not bound first, when
    blocks would lie inside of threads or serial loops, beyond the limits of the device, and when
    threads would add to the same element or read what another one wrote to anything but shared memory.
    """

    loop: int
    thread: str

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Bind]:
        """Every loop with every thread axis."""
        for loop in range(limits.max_loops):
            for thread in THREADS:
                yield cls(loop, thread)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleBind(schedule, at.loop(self.loop), self.thread)

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
