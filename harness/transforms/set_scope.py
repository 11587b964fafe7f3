"""`SetScope`: put an intermediate buffer into another storage scope."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["SetScope"]


@dataclass(frozen=True, slots=True)
class SetScope(ScheduleTransform):
    """Allocate the intermediate buffer that a block writes in another storage scope.

        B = alloc_buffer((16,))                        B = alloc_buffer((16,), scope="local")
        for i in range(16):                    →       for i in range(16):
            B[i] = A[i]                                    B[i] = A[i]

    Refused on outputs, when the buffer has that scope already or the target has no such memory, and on
    GPUs when another kernel, block or thread uses the buffer than the one whose memory it would lie in.
    """

    block: int
    scope: str

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[SetScope]:
        """Every block with every scope of the table: "local", on GPUs "shared" too."""
        for block in range(limits.max_blocks):
            for scope in limits.scopes:
                yield cls(block, scope)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleSetScope(schedule, at.block(self.block), 0, self.scope)

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
