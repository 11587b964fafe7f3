"""`PadAxis`: round one extent of a contraction up to a multiple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["PadAxis"]

MAX_AXES = 4
"""Iterators that an action table can name."""
FACTORS = (8, 16)
"""Multiples that an action table offers."""


@dataclass(frozen=True, slots=True)
class PadAxis(ScheduleTransform):
    """Pad iterator `axis` of a sum of products to a multiple of `factor`, with zeros.

        for i, j, k in grid(7, 30, 9):     for k, j in grid(9, 32):
            C[i, j] += A[i, k] * B[k, j]       B_pad[k, j] = B[k, j] if j < 30 else 0
                                           for i, j, k in grid(7, 32, 9):
                                    →          C_pad[i, j] += A[i, k] * B_pad[k, j]
                                           for i, j in grid(7, 30):
                                               C[i, j] = C_pad[i, j]

    What the iterator does not index is read and written where it was. Refused where `PadEinsum` is,
    and for an iterator that does not exist.
    """

    block: int
    axis: int
    factor: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[PadAxis]:
        """Every block with its first iterators and two factors."""
        for block in range(limits.max_blocks):
            for axis in range(MAX_AXES):
                for factor in FACTORS:
                    yield cls(block, axis, factor)

    def multiples(self, extents: Sequence[int]) -> list[int]:
        """What the extent of each iterator becomes a multiple of."""
        return [self.factor if axis == self.axis else 1 for axis in range(len(extents))]

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        extents = at.nest.blocks[self.block].facts.iter_extents
        ffi.SchedulePadEinsum(schedule, at.block(self.block), self.multiples(extents))

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
