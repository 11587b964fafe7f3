"""`SoftwarePipeline`: copy what later iterations of a loop need while this one computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.tensorir.pipelines import ASYNC, ORDER, STAGE, pipeline_children
from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["SoftwarePipeline"]

STAGES = (2, 3, 4)
"""Numbers of stages that the action table offers."""


@dataclass(frozen=True, slots=True)
class SoftwarePipeline(ScheduleTransform):
    """Start the copies into shared memory of a loop `stages` - 1 iterations ahead of their use.

        for k in range(8):                 A_shared[0] = A[0]
            A_shared = A[k]                for k in range(7):
            C += f(A_shared)        →          A_shared[(k + 1) % 2] = A[k + 1]
                                               C += f(A_shared[k % 2])
                                           C += f(A_shared[1])

    The IR keeps the loop, with annotations; the compiler makes `stages` copies of each shared buffer when
    the program is built. Where the device has asynchronous copies (`cp.async`, sm_80 and later), and each
    thread copies 4, 8 or 16 aligned bytes at a time, the copies run beside the threads. Refused unless the
    body is a sequence of copies into shared memory, which nothing outside of the loop uses and which do
    not depend on what the loop computes, and of other statements; for fewer iterations than stages; in or
    around a loop with a pragma or pipeline. Afterwards the loop and what lies in it are frozen.
    """

    loop: int
    stages: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[SoftwarePipeline]:
        """Every loop with two to four stages."""
        for stages in STAGES:
            for loop in range(limits.max_loops):
                yield cls(loop, stages)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        children = pipeline_children(at.nest, self.loop)
        ahead = [child.copies for child in children]
        order = sorted(range(len(children)), key=lambda i: not ahead[i])
        stage = [0 if copies else self.stages - 1 for copies in ahead]
        loop = at.loop(self.loop)
        schedule.annotate(loop, STAGE, stage)
        schedule.annotate(loop, ORDER, [order.index(i) for i in range(len(children))])
        schedule.annotate(loop, ASYNC, [0])

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
