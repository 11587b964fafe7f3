"""`Facts`: what rules and shortcuts need to know of a loop nest, as bit sets over loops and blocks.

Bit i of a loop set stands for loop i, bit i of a block set for block i.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import tvm
import tvm.target.codegen
from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.target import Target
from tirgym.harness.tensorir.block_view import BlockView, block_view
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Linear,
    LoopNest,
)
from tirgym.harness.transforms.tensorize import INTRINSICS

__all__ = ["Facts", "bits", "span"]


def bits(members: int) -> list[int]:
    """Members of a bit set, ascending."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


@cache
def cpu_features(target: Target) -> frozenset[str]:
    """Those CPU features of `target` that some intrinsic needs."""
    if target.backend != "llvm":
        return frozenset()
    built = tvm.target.Target({"kind": "llvm", "mcpu": target.arch})
    return frozenset(
        feature
        for feature in INTRINSICS.values()
        if tvm.target.codegen.target_has_features(feature, built)
    )


class Facts:
    """Facts of one state. Sets over loops or blocks are integers used as bit sets."""

    def __init__(self, schedule: Any, nest: LoopNest, target: Target) -> None:
        self._schedule, self.nest, self.target = schedule, nest, target
        self.loops, self.blocks = nest.loops, nest.blocks
        self.all_loops = (1 << len(nest.loops)) - 1
        self.all_blocks = (1 << len(nest.blocks)) - 1
        self._read_loops()
        self._read_blocks()

    def _read_loops(self) -> None:
        self.bit: dict[int, int] = {}
        self.below: list[int] = []
        by_kind = [0, 0, 0, 0, 0]
        self.over_loop = self.over_block = self.annotated = 0
        for loop in self.loops:
            here = 1 << loop.index
            self.bit[loop.var] = here
            self.below.append(here)
            for i in loop.chain[:-1]:
                self.below[i] |= here
            by_kind[loop.kind] |= here
            if loop.body == "loop":
                self.over_loop |= here
            elif loop.body == "block":
                self.over_block |= here
            if loop.annotated:
                self.annotated |= here
        self.serial, self.parallel = by_kind[SERIAL], by_kind[PARALLEL]
        self.vectorized, self.unrolled = by_kind[VECTORIZED], by_kind[UNROLLED]
        self.bound = self.all_loops & ~(
            self.serial | self.parallel | self.vectorized | self.unrolled
        )

    def _read_blocks(self) -> None:
        self.views = [block_view(b) for b in self.blocks]
        self.chain: list[int] = []
        self.reduced: list[int] = []
        self.trips: list[int] = []
        self.once: list[bool] = []
        writers: dict[int, list[int]] = {}
        readers: dict[int, list[int]] = {}
        bit, loops = self.bit, self.loops
        for block, view in zip(self.blocks, self.views, strict=True):
            chain = reduced = 0
            trips = 1
            for i in block.chain:
                chain |= 1 << i
                trips *= loops[i].extent
            for var in view.reduce_vars:
                reduced |= bit.get(var, 0)
            self.chain.append(chain)
            self.reduced.append(reduced)
            self.trips.append(trips)
            self.once.append(trips == view.domain and not block.has_predicate)
            for buffer in view.writes:
                writers.setdefault(buffer, []).append(block.index)
            for buffer in view.reads:
                readers.setdefault(buffer, []).append(block.index)
        self.writers, self.readers = writers, readers
        intermediates = {hash(buffer) for buffer in self.nest.root.alloc_buffers}
        self.intermediates = intermediates
        self.producers: list[list[int]] = []
        self.consumers: list[list[int]] = []
        self.outputs = self.makers = self.aligned = 0
        for block, view in zip(self.blocks, self.views, strict=True):
            here = block.index
            self.producers.append(
                sorted({p for r in view.reads for p in writers.get(r, ()) if p != here})
            )
            self.consumers.append(
                sorted({c for w in view.writes for c in readers.get(w, ()) if c != here})
            )
            if not intermediates.issuperset(view.writes):
                self.outputs |= 1 << here
            if view.writes and view.writes[0] in intermediates:
                self.makers |= 1 << here
            if block.facts.annotated:
                self.aligned |= 1 << here

    def around(self, loops: int) -> int:
        """Loops that are or lie below one of `loops`."""
        found = 0
        for i in bits(loops):
            found |= self.below[i]
        return found

    def above(self, loop: int) -> int:
        """Loops around `loop`, it included."""
        found = 0
        for i in self.loops[loop].chain:
            found |= 1 << i
        return found

    def inside(self, block: int, loop: int) -> bool:
        """Whether `loop` is around `block`."""
        return bool(self.chain[block] >> loop & 1)

    @cached_property
    def flags(self) -> list[tuple[bool, bool]]:
        """TVM's own (affine binding, region cover) of each block."""
        state = ffi.ScheduleGetState(self._schedule)
        found = []
        for block in self.blocks:
            flags = ffi.ScheduleStateGetCachedFlags(
                state, ffi.ScheduleStateGetSRef(state, block.facts.node)
            )
            found.append((bool(flags[0]), bool(flags[1])))
        return found

    @cached_property
    def cpu_features(self) -> frozenset[str]:
        """CPU features of the target that intrinsics may need."""
        return cpu_features(self.target)

    @cached_property
    def pipeline(self) -> bool:
        """TVM's flag: the function is a stage pipeline."""
        state = ffi.ScheduleGetState(self._schedule)
        root = ffi.ScheduleStateGetSRef(state, self.nest.root)
        return bool(ffi.ScheduleStateGetCachedFlags(state, root)[2])

    @cached_property
    def overwritten(self) -> int:
        """Blocks that read what a later block writes."""
        found = 0
        for i, view in enumerate(self.views):
            for buffer in view.reads:
                writers = self.writers.get(buffer)
                if writers and writers[-1] > i:
                    found |= 1 << i
        return found

    @cached_property
    def complete(self) -> int:
        """Blocks that only map: spatial, sole writer, not reading what they write."""
        found = 0
        for i, view in enumerate(self.views):
            if view.spatial_only and not view.overlaps and self._sole(view):
                found |= 1 << i
        return found

    @cached_property
    def reduction(self) -> int:
        """Reductions with initialisation that are the sole writer."""
        found = 0
        for i, view in enumerate(self.views):
            if self.local_reduction >> i & 1 and self._sole(view):
                found |= 1 << i
        return found

    @cached_property
    def local_reduction(self) -> int:
        """Reductions with initialisation, other writers or not."""
        found = 0
        for i, (block, view) in enumerate(zip(self.blocks, self.views, strict=True)):
            if (
                block.facts.has_init
                and view.known_iters
                and not view.reduces_into_index
                and self.flags[i][0]
            ):
                found |= 1 << i
        return found

    def _sole(self, view: BlockView) -> bool:
        return all(len(self.writers[w]) == 1 for w in view.writes)

    @cached_property
    def work(self) -> int:
        """Block instances that run, over all blocks."""
        return sum(self.trips)

    @cached_property
    def domain(self) -> int:
        """Block instances that are distinct, over all blocks: the work without recomputation."""
        return sum(view.domain for view in self.views)

    @cached_property
    def first_init(self) -> list[int]:
        """First block with an initialisation below each loop, -1 if none."""
        has = [b.facts.has_init for b in self.blocks]
        return [next((b for b in loop.blocks if has[b]), -1) for loop in self.loops]


def span(binding: Linear, inner: dict[int, int]) -> int:
    """Values that `binding` takes while the variables of `inner` (extent by handle) run, about."""
    reach = 0.0
    for var, coefficient in binding.coefficients.items():
        extent = inner.get(var)
        if extent is not None:
            reach += abs(coefficient) * (extent - 1)
    return int(reach) + 1
