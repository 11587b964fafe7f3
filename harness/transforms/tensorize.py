"""`Tensorize`: replace a small loop nest by one instruction on vectors or matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.tensorir.wmma import WMMA, register_wmma, variant_of
from tirgym.harness.transforms.base import NodeRef, ScheduleTransform, SlotLimits

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.handles import Handles
    from tirgym.harness.tensorir.nest import LoopNest

__all__ = ["Tensorize"]

CPU_FEATURES = {
    "dot_16x4_vnni": "avx512vnni",
    "transpose_16x16": "avx512f",
    "transpose_8x8": "avx",
}
"""Vector intrinsics, with the CPU feature that each needs."""
INTRINSICS = {**CPU_FEATURES, **dict.fromkeys(WMMA, "wmma")}
"""All intrinsics, with the feature of the target that each needs."""


@dataclass(frozen=True, slots=True)
class Tensorize(ScheduleTransform):
    """Replace the loop nest below a loop by an instruction of the target that computes the same.

        for j in range(16):
            for k in range(4):      →      C[0:16] = vpdpbusd(C[0:16], A[0:4], B[0:16, 0:4])
                C[j] += int32(A[k]) * int32(B[j, k])

    `dot_16x4_vnni` is the x86 dot product of unsigned by signed bytes into 32-bit integers;
    `transpose_16x16` and `transpose_8x8` load a float32 square row by row, transpose it in vector
    registers, and store it row by row. Refused when the target lacks the instructions, and unless
    the nest is that dot product of 16 by 4 without initialisation (see `DecomposeReduction`), with B
    stored as rows of 16 × 4 bytes, or a copy of a square whose inner loop runs along the rows that
    are written and down the columns that are read.

    The `wmma` instructions use tensor cores: a warp of 32 threads together loads tiles of 16 × 16 elements
    from shared memory or inputs into fragments (which makes the buffer of the copy one of fragments),
    fills a fragment with zeros, multiplies and adds, and stores sums. Operands are float16 or int8, sums
    float32, float16 or int32. "transposed" is for a B whose columns lie in memory as rows. Refused unless
    the kernel has 32 threads along threadIdx.x or none yet, and the nest is the same for all of them.
    Until all that touches a fragment is an instruction, the loops stand for them when the program is built.
    """

    rebuilds: ClassVar[bool] = True

    loop: int
    intrinsic: str

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[Tensorize]:
        """Every loop with every intrinsic of the table."""
        for intrinsic in limits.intrinsics:
            for loop in range(limits.max_loops):
                yield cls(loop, intrinsic)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Mutate `schedule`."""
        from tirgym.harness.tensorir.intrinsics import TRANSPOSES, register_intrinsic

        if self.intrinsic in WMMA:
            self._on_fragments(schedule, at)
            return
        swapped = self.intrinsic in TRANSPOSES and _columns_first(at.nest, self.loop)
        intrinsic = register_intrinsic(self.intrinsic, swapped)
        ffi.ScheduleTensorize(schedule, at.loop(self.loop), intrinsic, True)

    def _on_fragments(self, schedule: Schedule, at: Handles) -> None:
        block = at.nest.first_block(self.loop)
        instruction = WMMA[self.intrinsic]
        variant = variant_of(instruction, at.nest.blocks[block].facts)
        if instruction.kind in ("load", "fill"):
            ffi.ScheduleSetScope(schedule, at.block(block), 0, instruction.fragment)
        known = register_wmma(self.intrinsic, *variant)
        ffi.ScheduleTensorize(schedule, at.loop(self.loop), known, True)

    @property
    def node(self) -> NodeRef:
        """The loop."""
        return NodeRef("loop", self.loop)


def _columns_first(nest: LoopNest, loop: int) -> bool:
    """Whether the inner of two loops drives an earlier iterator of the block than the outer one."""
    bindings = nest.blocks[nest.loops[loop].blocks[0]].bindings
    outer, inner = (
        [i for i, b in enumerate(bindings) if nest.loops[each].var in b.coefficients]
        for each in (loop, loop + 1)
    )
    return inner < outer
