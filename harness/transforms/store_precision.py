"""`StorePrecision`: keep an intermediate buffer in a narrower float type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["StorePrecision"]

DTYPES = ("float16", "bfloat16")
"""Types that the action table offers."""


@dataclass(frozen=True, slots=True)
class StorePrecision(ScheduleTransform):
    """Store the intermediate buffer that a block writes in a narrower float type.

        C_global = alloc_buffer((64,), "float32")      C_global = alloc_buffer((64,), "float16")
        C_global[i] += A[i, k]                 →       C_global[i] = float16(
                                                           float32(C_global[i]) + A[i, k])
        C[i] = C_global[i]                             C[i] = float32(C_global[i])

    Changes what the program computes: values are rounded at each store, arithmetic stays as it is.
    The correctness gate decides whether that is close enough. In no default vocabulary; name it in
    `extra`. Refused on outputs and on buffers that are not float32 or float64.
    """

    block: int
    dtype: str

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[StorePrecision]:
        """Every block with every narrower type."""
        for block in range(limits.max_blocks):
            for dtype in DTYPES:
                yield cls(block, dtype)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        ffi.ScheduleUnsafeSetDType(schedule, at.block(self.block), 0, self.dtype)

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
