"""`PadEinsum`: round the extents of a contraction up to a multiple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles

__all__ = ["PadEinsum"]

FACTORS = (8, 16)
"""Multiples that the action table offers."""


@dataclass(frozen=True, slots=True)
class PadEinsum(ScheduleTransform):
    """Pad the iterators of a sum of products to multiples of `factor`, with zeros.

        for i, k in grid(7, 30):           for i, k in grid(8, 32):
            C[i] += A[i, k] * B[k]             A_pad[i, k] = A[i, k] if i < 7 and k < 30 else 0
                                           for k in range(32):
                                    →          B_pad[k] = B[k] if k < 30 else 0
                                           for i, k in grid(8, 32):
                                               C_pad[i] += A_pad[i, k] * B_pad[k]
                                           for i in range(7):
                                               C[i] = C_pad[i]

    So that larger factors divide. Iterators shorter than the factor stay. Refused for anything but a
    sum of products in an untouched loop nest of its own, when nothing needs padding, and when the
    work would more than double.
    """

    block: int
    factor: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[PadEinsum]:
        """Every block with two factors."""
        for block in range(limits.max_blocks):
            for factor in FACTORS:
                yield cls(block, factor)

    def multiples(self, extents: Sequence[int]) -> list[int]:
        """What the extent of each iterator becomes a multiple of."""
        return [self.factor if extent >= self.factor else 1 for extent in extents]

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        extents = at.nest.blocks[self.block].facts.iter_extents
        ffi.SchedulePadEinsum(schedule, at.block(self.block), self.multiples(extents))

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)
