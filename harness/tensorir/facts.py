"""`Facts`: what rules and shortcuts need to know of a loop nest: loops, blocks, who reads what.

Sets over loops or blocks are bit sets, see `LoopFacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import tvm
import tvm.target.codegen
from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.target import Target
from tirgym.harness.tensorir.block_view import BlockView
from tirgym.harness.tensorir.device_limits import device_limits
from tirgym.harness.tensorir.exchange import exchange_of
from tirgym.harness.tensorir.loop_facts import LoopFacts, PartFacts, bits, cached_flag, part_facts
from tirgym.harness.tensorir.nest import Linear, Loop, LoopNest, Placement
from tirgym.harness.transforms.tensorize import CPU_FEATURES

__all__ = ["Facts", "LoopFacts", "bits", "span"]

T = TypeVar("T")


class _Lazy(Generic[T]):
    """A cached property without a lock."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.__doc__ = make, make.__doc__
        self.name = make.__name__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        made = owner.__dict__[self.name] = self.make(owner)
        return made


@cache
def features(target: Target) -> frozenset[str]:
    """What `target` has of that which some intrinsic needs."""
    if target.backend != "llvm":
        limits = device_limits(target)
        return frozenset(() if limits is None else limits.features)
    built = tvm.target.Target({"kind": "llvm", "mcpu": target.arch})
    return frozenset(
        feature
        for feature in CPU_FEATURES.values()
        if tvm.target.codegen.target_has_features(feature, built)
    )


class Facts(LoopFacts):
    """Facts of one state."""

    def __init__(self, schedule: Any, nest: LoopNest, target: Target) -> None:
        self._schedule, self.nest, self.target = schedule, nest, target
        self.blocks = nest.blocks
        self.all_loops = (1 << nest.size) - 1
        self.all_blocks = (1 << len(nest.blocks)) - 1
        self.parts: list[tuple[PartFacts, int, int]] = []
        """facts of each part, with the numbers of its first loop and its first block"""
        self._join_parts()
        self.intermediates = nest.intermediates
        exchange = self.exchange = exchange_of(nest, self.placed, self.views)
        self.writers, self.readers = exchange.writers, exchange.readers
        self.producers, self.consumers = exchange.producers, exchange.consumers
        self.outputs, self.makers, self.shared = exchange.outputs, exchange.makers, exchange.shared
        self.complete, self.overwritten = exchange.complete, exchange.overwritten

    def _join_parts(self) -> None:
        """Put together what the parts say."""
        up: list[int] = []
        below: list[int] = []
        chains: list[int] = []
        reductions: list[int] = []
        variables: list[int] = []
        extents: list[int] = []
        runs: list[int] = []
        trips: list[int] = []
        once: list[bool] = []
        views: list[BlockView] = []
        placed: list[Placement] = []
        over_loop = over_block = annotated = pipelined = nested = single = 0
        serial = parallel = vectorized = unrolled = bound = aligned = affine = local_reduction = 0
        for entry in self.nest.parts:
            facts, loop, block = part_facts(entry, self._schedule), entry.loop, entry.block
            self.parts.append((facts, loop, block))
            variables += facts.variables
            extents += facts.extents
            runs += facts.runs
            trips += facts.trips
            once += facts.once
            views += facts.views
            placed += entry.blocks
            up += [members << loop for members in facts.up]
            below += [members << loop for members in facts.below]
            chains += [members << loop for members in facts.chain]
            reductions += [members << loop for members in facts.reduced]
            over_loop |= facts.over_loop << loop
            over_block |= facts.over_block << loop
            nested |= facts.nested << loop
            single |= facts.single << loop
            serial |= facts.serial << loop
            annotated |= facts.annotated << loop
            pipelined |= facts.pipelined << loop
            parallel |= facts.parallel << loop
            vectorized |= facts.vectorized << loop
            unrolled |= facts.unrolled << loop
            bound |= facts.bound << loop
            aligned |= facts.aligned << block
            affine |= facts.affine << block
            local_reduction |= facts.local_reduction << block
        self.variables, self.extents, self.up, self.below = variables, extents, up, below
        self.chain, self.reduced, self.trips, self.once = chains, reductions, trips, once
        self.views, self.placed, self.runs = views, placed, runs
        self.over_loop, self.over_block, self.annotated = over_loop, over_block, annotated
        self.pipelined = pipelined
        self.nested, self.single, self.serial, self.parallel = nested, single, serial, parallel
        self.vectorized, self.unrolled, self.bound = vectorized, unrolled, bound
        self.aligned, self.affine, self.local_reduction = aligned, affine, local_reduction

    @_Lazy
    def bit(self) -> dict[int, int]:
        """Loop, as a bit, by variable."""
        return {variable: 1 << i for i, variable in enumerate(self.variables)}

    @_Lazy
    def firsts(self) -> Sequence[int]:
        """First block below each loop."""
        return [block + first for facts, _, block in self.parts for first in facts.firsts]

    @_Lazy
    def _places(self) -> list[tuple[PartFacts, int, int]]:
        found = []
        for facts, loop, _ in self.parts:
            found += [(facts, at, loop) for at in range(len(facts.placed))]
        return found

    def place(self, block: int) -> tuple[PartFacts, int, int]:
        """The part that holds a block, its number there, and the number of the part's first loop."""
        return self._places[block]

    @property
    def loops(self) -> list[Loop]:
        """The loops of the nest."""
        return self.nest.loops

    @_Lazy
    def flags(self) -> list[tuple[bool, bool]]:
        """TVM's own (affine binding, region cover) of each block."""
        return [
            (bool(self.affine >> i & 1), not self.uncovered >> i & 1)
            for i in range(len(self.blocks))
        ]

    @_Lazy
    def uncovered(self) -> int:
        """Blocks that, for all the compiler knows, read more than their producers write."""
        found = 0
        state = ffi.ScheduleGetState(self._schedule)
        for i, producers in enumerate(self.producers):
            if producers and not cached_flag(state, self.blocks[i].facts.node, 1):
                found |= 1 << i
        return found

    @_Lazy
    def features(self) -> frozenset[str]:
        """What the target has of that which intrinsics need."""
        return features(self.target)

    @_Lazy
    def collective(self) -> int:
        """Blocks that a whole warp runs together."""
        return sum([1 << i for i, view in enumerate(self.views) if view.collective])

    @_Lazy
    def pipeline(self) -> bool:
        """TVM's flag: the function is a stage pipeline."""
        return cached_flag(ffi.ScheduleGetState(self._schedule), self.nest.root, 2)

    @_Lazy
    def reduction(self) -> int:
        """Reductions with initialisation that are the sole writer."""
        return self.local_reduction & ~self.shared

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
    def first_init(self) -> Sequence[int]:
        """First block with an initialisation below each loop, -1 if none."""
        return [
            block + first if first >= 0 else -1
            for facts, _, block in self.parts
            for first in facts.first_init
        ]

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
        for i in bits(self.uncovered):
            found.update(self.views[i].reads)
        return found


def span(binding: Linear, inner: dict[int, int]) -> int:
    """Values that `binding` takes while the variables of `inner` (extent by handle) run, about."""
    reach = 0.0
    for var, coefficient in binding.coefficients.items():
        extent = inner.get(var)
        if extent is not None:
            reach += abs(coefficient) * (extent - 1)
    return int(reach) + 1
