"""`VectorMath`: write the calls of a block as arithmetic that vectorizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["VectorMath"]


@dataclass(frozen=True, slots=True)
class VectorMath(ScheduleTransform):
    """Write every call of exp, log, tanh, … in a block as arithmetic, so that it can vectorize.

        for i in vectorized(16):         for i in vectorized(16):
            B[i] = exp(A[i])      →          n = round(A[i] / ln2)
                                             f = A[i] - n * ln2
                                             B[i] = polynomial(f) * 2^n

    LLVM has no vector instruction for such functions, and calls the C library for each lane. The
    arithmetic is as exact as that: within 2 units in the last place, over all arguments (see
    `harness/tensorir/elementary.py`). TVM's Relax calls its pass of the kind FastMathTransform.
    Refused when the block has no such call, for other types than float32, and when the body would
    grow too large.
    """

    block: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[VectorMath]:
        """Every block."""
        for block in range(limits.max_blocks):
            yield cls(block)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        from tirgym.harness.tensorir.vector_calls import with_vector_math

        old = at.nest.blocks[self.block].facts.node
        new = with_vector_math(old)
        place = ffi.ScheduleGetSRef(schedule, at.block(self.block))
        ffi.ScheduleStateReplace(ffi.ScheduleGetState(schedule), place, new, {old: new})

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
