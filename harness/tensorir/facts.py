"""`Facts`: what rules and shortcuts need to know of a loop nest, as bit sets over loops and blocks.

Bit i of a loop set stands for loop i, bit i of a block set for block i.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import tvm
import tvm.target.codegen
from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.target import Target
from tirgym.harness.tensorir.block_view import block_view
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Linear,
    LoopNest,
    items,
)
from tirgym.harness.transforms.tensorize import INTRINSICS

__all__ = ["Facts", "bits", "span"]

T = TypeVar("T")


def bits(members: int) -> list[int]:
    """Members of a bit set, ascending."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


class _Lazy(Generic[T]):
    """A cached property without a lock."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.__doc__ = make, make.__doc__
        self.name = make.__name__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        made = owner.__dict__[self.name] = self.make(owner)
        return made


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
        bit: dict[int, int] = {}
        up: list[int] = []
        by_kind = [0, 0, 0, 0, 0]
        over_loop = over_block = annotated = nested = single = 0
        extents = []
        here = 1
        for loop in self.loops:
            bit[loop.var] = here
            extents.append(loop.extent)
            parent = loop.parent
            if parent >= 0:
                nested |= here
                up.append(up[parent] | here)
            else:
                up.append(here)
            by_kind[loop.kind] |= here
            if loop.body == "loop":
                over_loop |= here
            elif loop.body == "block":
                over_block |= here
            if loop.annotated:
                annotated |= here
            if len(loop.blocks) == 1:
                single |= here
            here <<= 1
        below = [1 << i for i in range(len(up))]
        for loop in reversed(self.loops):
            if loop.parent >= 0:
                below[loop.parent] |= below[loop.index]
        self.bit, self.up, self.below, self.extents = bit, up, below, extents
        self.over_loop, self.over_block, self.annotated = over_loop, over_block, annotated
        self.nested, self.single = nested, single
        self.serial, self.parallel = by_kind[SERIAL], by_kind[PARALLEL]
        self.vectorized, self.unrolled = by_kind[VECTORIZED], by_kind[UNROLLED]
        self.bound = self.all_loops & ~(
            self.serial | self.parallel | self.vectorized | self.unrolled
        )

    def _read_blocks(self) -> None:
        views = [block_view(b) for b in self.blocks]
        chains: list[int] = []
        reductions: list[int] = []
        works: list[int] = []
        once: list[bool] = []
        writers: dict[int, list[int]] = {}
        readers: dict[int, list[int]] = {}
        bit, extents, up = self.bit, self.extents, self.up
        aligned = 0
        for block, view in zip(self.blocks, views, strict=True):
            index, chain = block.index, block.chain
            reduced = 0
            trips = 1
            for i in chain:
                trips *= extents[i]
            for var in view.reduce_vars:
                reduced |= bit.get(var, 0)
            chains.append(up[chain[-1]] if chain else 0)
            reductions.append(reduced)
            works.append(trips)
            once.append(trips == view.domain and not block.has_predicate)
            for buffer in view.writes:
                writers.setdefault(buffer, []).append(index)
            for buffer in view.reads:
                readers.setdefault(buffer, []).append(index)
            if block.facts.annotated:
                aligned |= 1 << index
        self.views, self.chain, self.reduced, self.trips = views, chains, reductions, works
        self.once, self.writers, self.readers, self.aligned = once, writers, readers, aligned
        self.intermediates = {hash(buffer) for buffer in items(self.nest.root.alloc_buffers)}
        self._read_edges()

    def _read_edges(self) -> None:
        """Which blocks exchange buffers, and what follows for a block as a whole."""
        writers, readers, intermediates = self.writers, self.readers, self.intermediates
        self.producers: list[list[int]] = []
        self.consumers: list[list[int]] = []
        outputs = makers = complete = overwritten = shared = 0
        for owners in writers.values():
            if len(owners) > 1:
                for i in owners:
                    shared |= 1 << i
        for index, view in enumerate(self.views):
            here = 1 << index
            self.producers.append(_others(view.reads, writers, index))
            self.consumers.append(_others(view.writes, readers, index))
            writes = view.writes
            if not intermediates.issuperset(writes):
                outputs |= here
            if writes and writes[0] in intermediates:
                makers |= here
            if view.spatial_only and not view.overlaps and not shared & here:
                complete |= here
            for buffer in view.reads:
                owners = writers.get(buffer)  # type: ignore[assignment]
                if owners and owners[-1] > index:
                    overwritten |= here
        self.outputs, self.makers, self.shared = outputs, makers, shared
        self.complete = complete
        """blocks that only map: spatial, sole writer, not reading what they write"""
        self.overwritten = overwritten
        """blocks that read what a later block writes"""

    def around(self, loops: int) -> int:
        """Loops that are or lie below one of `loops`."""
        found = 0
        for i in bits(loops):
            found |= self.below[i]
        return found

    def above(self, loop: int) -> int:
        """Loops around `loop`, it included."""
        return self.up[loop]

    def inside(self, block: int, loop: int) -> bool:
        """Whether `loop` is around `block`."""
        return bool(self.chain[block] >> loop & 1)

    @_Lazy
    def flags(self) -> list[tuple[bool, bool]]:
        """TVM's own (affine binding, region cover) of each block."""
        state = ffi.ScheduleGetState(self._schedule)
        found = []
        for block in self.blocks:
            flags = ffi.ScheduleStateGetCachedFlags(
                state, ffi.ScheduleStateGetSRef(state, block.facts.node)
            )
            affine, covered, _ = items(flags)
            found.append((bool(affine), bool(covered)))
        return found

    @_Lazy
    def cpu_features(self) -> frozenset[str]:
        """CPU features of the target that intrinsics may need."""
        return cpu_features(self.target)

    @_Lazy
    def pipeline(self) -> bool:
        """TVM's flag: the function is a stage pipeline."""
        state = ffi.ScheduleGetState(self._schedule)
        root = ffi.ScheduleStateGetSRef(state, self.nest.root)
        return bool(ffi.ScheduleStateGetCachedFlags(state, root)[2])

    @_Lazy
    def reduction(self) -> int:
        """Reductions with initialisation that are the sole writer."""
        return self.local_reduction & ~self.shared

    @_Lazy
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

    @_Lazy
    def work(self) -> int:
        """Block instances that run, over all blocks."""
        return sum(self.trips)

    @_Lazy
    def domain(self) -> int:
        """Block instances that are distinct, over all blocks: the work without recomputation."""
        total = 0
        for view in self.views:
            total += view.domain
        return total

    @_Lazy
    def first_init(self) -> list[int]:
        """First block with an initialisation below each loop, -1 if none."""
        found = [-1] * len(self.loops)
        for block in reversed(self.blocks):
            if block.facts.has_init:
                for i in block.chain:
                    found[i] = block.index
        return found

    @_Lazy
    def moving(self) -> int:
        """Blocks whose loops the compiler might change as a whole, if there are several blocks."""
        if not self.pipeline or len(self.blocks) < 2:
            return 0
        return (self.complete | self.reduction) & ~self.overwritten

    @_Lazy
    def unstaged(self) -> set[int]:
        """Buffers that several blocks write, or that some reader is not sure to find complete."""
        found = {buffer for buffer, blocks in self.writers.items() if len(blocks) > 1}
        flags = self.flags
        for buffer, blocks in self.readers.items():
            for i in blocks:
                if not flags[i][1]:
                    found.add(buffer)
        return found

    @_Lazy
    def stored(self) -> list[tuple[int, tuple[int, ...], bool, bool]]:
        """For each block: its first written buffer, with its shape (handle -1: none), whether an
        accessor of it is an intrinsic, and whether one has a falling index into it."""
        found: list[tuple[int, tuple[int, ...], bool, bool]] = []
        for block in self.blocks:
            writes = block.facts.writes
            if not writes:
                found.append((-1, (), False, False))
                continue
            buffer = writes[0].buffer
            handle = buffer.handle
            opaque = falling = False
            for users in (self.writers.get(handle, ()), self.readers.get(handle, ())):
                for i in users:
                    view = self.views[i]
                    opaque = opaque or view.intrinsic
                    falling = falling or handle in view.mirrored
            found.append((handle, buffer.shape, opaque, falling))
        return found


def _others(buffers: tuple[int, ...], users: dict[int, list[int]], index: int) -> list[int]:
    """Blocks other than `index` among the users of `buffers`, ascending."""
    found: list[int] = []
    for buffer in buffers:
        for user in users.get(buffer, ()):
            if user != index and user not in found:
                found.append(user)
    if len(found) > 1:
        found.sort()
    return found


def span(binding: Linear, inner: dict[int, int]) -> int:
    """Values that `binding` takes while the variables of `inner` (extent by handle) run, about."""
    reach = 0.0
    for var, coefficient in binding.coefficients.items():
        extent = inner.get(var)
        if extent is not None:
            reach += abs(coefficient) * (extent - 1)
    return int(reach) + 1
