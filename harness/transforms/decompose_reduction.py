"""`DecomposeReduction`: split a reduction into its initialisation and its update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["DecomposeReduction"]


@dataclass(frozen=True, slots=True)
class DecomposeReduction(ScheduleTransform):
    """Split the first reduction block below a loop into an initialisation, placed before the loop,
    and an update.

        for i, k in grid(16, 32):          for i in range(16):
            with init():                       C[i] = 0.0
                C[i] = 0.0          →          for k in range(32):
            C[i] += A[i, k]                        C[i] += A[i, k]

    Refused below a loop that reduces, and when the loops around the block visit an element more
    often than the reduction does (recomputation): sums would be added twice.
    """

    loop: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[DecomposeReduction]:
        """Every loop."""
        for loop in range(limits.max_loops):
            yield cls(loop)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        nest = at.nest
        block = next(b for b in nest.loops[self.loop].blocks if nest.blocks[b].facts.has_init)
        at.made(ffi.ScheduleDecomposeReduction(schedule, at.block(block), at.loop(self.loop)))

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)
