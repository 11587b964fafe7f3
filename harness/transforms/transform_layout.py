"""`TransformLayout`: change how an intermediate buffer lies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm.s_tir.schedule import _ffi_api as ffi
from tvm.tirx import IndexMap

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["TransformLayout"]

MAX_AXES = 3
"""Dimensions that the action table can name."""
FACTORS = (1, 8, 16)
"""Pack factors that the action table offers; 1 swaps dimensions."""


@dataclass(frozen=True, slots=True)
class TransformLayout(ScheduleTransform):
    """Change the index map of the intermediate buffer that a block writes, in all its accesses.

    With `factor` 1, dimension `axis` swaps with the last one; otherwise it is split by `factor` and
    the inner part becomes the last dimension. Both maps are injective. With factor 1 and axis 0:

        B = alloc_buffer((16, 32))                     B = alloc_buffer((32, 16))
        B[i, j] = A[i, j]                      →       B[j, i] = A[i, j]
        C[i, j] = B[i, j]                              C[i, j] = B[j, i]

    Refused on inputs and outputs, whose layout is the kernel's signature, when the factor does not
    divide the dimension, and when the buffer is aligned or accessed by an intrinsic.
    """

    block: int
    axis: int
    factor: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[TransformLayout]:
        """Every block with its first dimensions and a few factors."""
        for block in range(limits.max_blocks):
            for axis in range(MAX_AXES):
                for factor in FACTORS:
                    yield cls(block, axis, factor)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        facts = at.nest.blocks[self.block].facts
        rank, dtype = len(facts.writes[0].buffer.shape), str(facts.node.iter_vars[0].var.ty.dtype)
        index_map = IndexMap.from_func(self.map_indices, ndim=rank, index_dtype=dtype)
        ffi.ScheduleTransformLayout(schedule, at.block(self.block), 0, 1, index_map, None, False)

    def map_indices(self, *indices: Any) -> list[Any]:
        """New indices of the element at `indices`."""
        mapped = list(indices)
        if self.factor == 1:
            mapped[self.axis], mapped[-1] = mapped[-1], mapped[self.axis]
            return mapped
        mapped[self.axis] = indices[self.axis] // self.factor
        return [*mapped, indices[self.axis] % self.factor]

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
