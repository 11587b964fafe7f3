"""`LoopFacts`: what rules and shortcuts need to know of loops and the blocks in them, as bit sets.

Bit i of a loop set stands for loop i, bit i of a block set for block i. The facts of one part of a
nest depend on its node alone and are found out once; those of a whole nest are put together from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.tensorir.block_view import BlockView, block_view
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    SERIAL,
    SPATIAL,
    THREAD_BINDING,
    UNROLLED,
    VECTORIZED,
    NestPart,
    PlacedPart,
    Placement,
    Shape,
)
from tirgym.harness.tensorir.node_cache import array_item

__all__ = ["LoopFacts", "bits", "part_facts"]


@lru_cache(maxsize=1 << 14)
def bits(members: int) -> tuple[int, ...]:
    """Members of a bit set, ascending."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return tuple(found)


class LoopFacts:
    """Facts of a nest, or of one part of it with numbers of its own. Sets are bit sets."""

    __slots__ = ()

    variables: Sequence[int]
    """handle of the variable of each loop"""
    extents: Sequence[int]
    up: Sequence[int]
    """for each loop the loops around it, it included"""
    below: Sequence[int]
    """for each loop the loops inside it, it included"""
    firsts: Sequence[int]
    """first block below each loop"""
    bit: dict[int, int]
    """loop, as a bit, by variable"""
    placed: Sequence[Placement]
    """the blocks"""
    views: Sequence[BlockView]
    chain: Sequence[int]
    """for each block the loops around it"""
    reduced: Sequence[int]
    """for each block the loops that it reduces over"""
    runs: Sequence[int]
    """for each loop how often its body runs"""
    trips: Sequence[int]
    """for each block how often it runs"""
    once: Sequence[bool]
    """for each block whether it runs once for each tuple of its iterators, without a guard"""

    all_loops: int
    all_blocks: int
    over_loop: int
    """the body is a loop"""
    over_block: int
    annotated: int
    pipelined: int
    """with a software pipeline"""
    nested: int
    """inside another loop"""
    single: int
    """with one block below"""
    serial: int
    parallel: int
    vectorized: int
    unrolled: int
    bound: int
    """thread axes"""
    aligned: int
    """blocks with an annotation"""
    affine: int
    """blocks whose bindings the compiler calls affine"""
    local_reduction: int
    """reductions with initialisation, other writers or not"""
    pipeline: bool
    """the function is a stage pipeline"""
    reduction: int
    """reductions with initialisation that are the sole writer"""
    first_init: Sequence[int]
    """first block with an initialisation below each loop, -1 if none"""

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


class LoopSets(NamedTuple):
    """What a shape says of its loops."""

    all_loops: int
    up: tuple[int, ...]
    below: tuple[int, ...]
    over_loop: int
    over_block: int
    annotated: int
    pipelined: int
    nested: int
    single: int
    serial: int
    parallel: int
    vectorized: int
    unrolled: int
    bound: int
    chain: tuple[int, ...]


def _loop_sets(shape: Shape) -> LoopSets:
    """Kept with the shape."""
    if shape.sets is not None:
        return shape.sets  # type: ignore[no-any-return]
    by_kind = [0, 0, 0, 0, 0]
    over = {"loop": 0, "block": 0, "sequence": 0, "other": 0}
    up: list[int] = []
    annotated = pipelined = nested = single = 0
    for i, parent in enumerate(shape.parents):
        here = 1 << i
        up.append(here if parent < 0 else up[parent] | here)
        nested |= here if parent >= 0 else 0
        by_kind[shape.kinds[i]] |= here
        over[shape.bodies[i]] |= here
        annotated |= here if shape.annotated[i] else 0
        pipelined |= here if shape.pipelined[i] else 0
        single |= here if shape.stops[i] - shape.firsts[i] == 1 else 0
    below = [1 << i for i in range(len(up))]
    for i in range(len(up) - 1, 0, -1):
        if shape.parents[i] >= 0:
            below[shape.parents[i]] |= below[i]
    shape.sets = LoopSets(
        (1 << len(up)) - 1,
        tuple(up),
        tuple(below),
        over["loop"],
        over["block"],
        annotated,
        pipelined,
        nested,
        single,
        by_kind[SERIAL],
        by_kind[PARALLEL],
        by_kind[VECTORIZED],
        by_kind[UNROLLED],
        by_kind[THREAD_BINDING],
        tuple([up[chain[-1]] if chain else 0 for chain in shape.block_chains]),
    )
    return shape.sets  # type: ignore[no-any-return]


Reach = tuple[tuple[int, int, tuple[tuple[int, float], ...]], ...]
"""For each iterator of a block: handle, extent less one, and loops, as bits, with how far the whole
of each moves it."""
Terms = tuple[tuple[float, int, int, int, bool], ...]
"""Of one iterator, ascending: coefficient, extent, loop as a bit, variable, within a division."""


class PartFacts(LoopFacts):
    """Facts of one part as if it were the whole program; kept as long as the part, so it holds no
    schedule, and little to visit for the garbage collector."""

    __slots__ = (
        "_reach",
        "_terms",
        "affine",
        "aligned",
        "all_blocks",
        "all_loops",
        "annotated",
        "below",
        "bit",
        "bound",
        "chain",
        "extents",
        "first_init",
        "firsts",
        "local_reduction",
        "nested",
        "once",
        "over_block",
        "over_loop",
        "parallel",
        "pipeline",
        "pipelined",
        "placed",
        "reduced",
        "reduction",
        "rows",
        "runs",
        "scheme",
        "serial",
        "single",
        "trips",
        "unrolled",
        "up",
        "variables",
        "vectorized",
        "views",
    )

    def __init__(self, entry: PlacedPart, schedule: Any) -> None:
        part = entry.part
        self.variables, self.extents, self.firsts = part.variables, part.extents, part.shape.firsts
        self.placed = part.blocks
        self.all_blocks = (1 << len(part.blocks)) - 1
        self.pipeline = True
        self._reach: list[Reach | None] | None = None
        self._terms: list[tuple[Terms, ...] | None] | None = None
        self.bit = {variable: 1 << i for i, variable in enumerate(part.variables)}
        self.scheme: Any = None
        self.rows: tuple[int, int, int, int] = (0, 0, 0, 0)
        """filled by `row_plans`, for one vocabulary"""
        (
            self.all_loops,
            self.up,
            self.below,
            self.over_loop,
            self.over_block,
            self.annotated,
            self.pipelined,
            self.nested,
            self.single,
            self.serial,
            self.parallel,
            self.vectorized,
            self.unrolled,
            self.bound,
            self.chain,
        ) = _loop_sets(part.shape)
        self._read_blocks(part, entry.blocks, schedule)

    def _read_blocks(self, part: NestPart, blocks: Sequence[Placement], schedule: Any) -> None:
        bit = self.bit
        runs: list[int] = []
        for extent, parent in zip(part.extents, part.shape.parents, strict=True):
            runs.append(extent if parent < 0 else runs[parent] * extent)
        reductions: list[int] = []
        trips: list[int] = []
        once: list[bool] = []
        first_init = [-1] * len(runs)
        views = tuple([block_view(place) for place in part.blocks])
        state = ffi.ScheduleGetState(schedule)
        aligned = affine = local_reduction = 0
        here = 1 << len(views)
        for index in range(len(views) - 1, -1, -1):
            here >>= 1
            place, view, chain = blocks[index], views[index], part.shape.block_chains[index]
            reduced = 0
            for variable in view.reduce_vars:
                reduced |= bit.get(variable, 0)
            reductions.append(reduced)
            times = runs[chain[-1]] if chain else 1
            trips.append(times)
            once.append(times == view.domain and not place.has_predicate)
            aligned |= here if place.facts.annotated else 0
            if place.facts.has_init:
                for loop in chain:
                    first_init[loop] = index
            if cached_flag(state, place.facts.node, 0):
                affine |= here
                if place.facts.has_init and view.known_iters and not view.reduces_into_index:
                    local_reduction |= here
        self.views, self.reduced = views, tuple(reductions[::-1])
        self.trips, self.once, self.runs = tuple(trips[::-1]), tuple(once[::-1]), tuple(runs)
        self.aligned, self.affine, self.first_init = aligned, affine, tuple(first_init)
        self.local_reduction = self.reduction = local_reduction

    def reach(self, block: int) -> Reach:
        """How far the loops move each iterator of a block."""
        if self._reach is None:
            self._reach = [None] * len(self.placed)
        found = self._reach[block]
        if found is None:
            found = self._reach[block] = self._make_reach(self.placed[block], self.chain[block])
        return found

    def _make_reach(self, place: Placement, chain: int) -> Reach:
        found = []
        facts = place.facts
        for handle, extent, binding in zip(
            facts.iter_handles, facts.iter_extents, place.bindings, strict=True
        ):
            steps = []
            for variable, coefficient in binding.coefficients.items():
                here = self.bit.get(variable, 0) & chain
                if here:
                    trips = self.extents[here.bit_length() - 1]
                    steps.append((here, abs(coefficient) * (trips - 1)))
            found.append((handle, extent - 1, tuple(steps)))
        return tuple(found)

    def terms(self, block: int) -> tuple[Terms, ...]:
        """For each spatial iterator of a block the loops that move it."""
        if self._terms is None:
            self._terms = [None] * len(self.placed)
        found = self._terms[block]
        if found is None:
            found = self._terms[block] = self._make_terms(self.placed[block])
        return found

    def _make_terms(self, place: Placement) -> tuple[Terms, ...]:
        found = []
        for kind, binding in zip(place.facts.iter_types, place.bindings, strict=True):
            if kind == SPATIAL:
                terms = []
                for variable, coefficient in binding.coefficients.items():
                    here = self.bit.get(variable, 0)
                    extent = self.extents[here.bit_length() - 1] if here else 1
                    if extent != 1:
                        fuzzy = variable in binding.fuzzy
                        terms.append((coefficient, extent, here, variable, fuzzy))
                terms.sort()
                found.append(tuple(terms))
        return tuple(found)


def cached_flag(state: Any, block: Any, number: int) -> bool:
    """One of TVM's own flags of a block: 0 its bindings are affine, which depends on the loops around
    it alone, 1 its reads are covered by what producers write, 2 a stage pipeline."""
    flags = ffi.ScheduleStateGetCachedFlags(state, ffi.ScheduleStateGetSRef(state, block))
    return bool(array_item(flags, number).value)


def part_facts(entry: PlacedPart, schedule: Any) -> PartFacts:
    """The facts of a part of what `schedule` holds; kept with the part."""
    found = entry.part.facts
    if found is None:
        found = entry.part.facts = PartFacts(entry, schedule)
    return found  # type: ignore[no-any-return]
