"""`LoopFacts`: what rules and shortcuts need to know of loops and the blocks in them, as bit sets.

Bit i of a loop set stands for loop i, bit i of a block set for block i. The facts of one part of a
nest depend on its node alone and are found out once; those of a whole nest are put together from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.s_tir.schedule import _ffi_api as ffi

from tirgym.harness.tensorir.block_view import BlockView, block_view
from tirgym.harness.tensorir.nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    NestPart,
    Placement,
)
from tirgym.harness.tensorir.node_cache import items

__all__ = ["LoopFacts", "bits", "part_facts"]


def bits(members: int) -> list[int]:
    """Members of a bit set, ascending."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


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
    nested: int
    """inside another loop"""
    single: int
    """with one block below"""
    serial: int
    parallel: int
    vectorized: int
    unrolled: int
    aligned: int
    """blocks with an annotation"""
    affine: int
    """blocks whose bindings the compiler calls affine"""
    local_reduction: int
    """reductions with initialisation, other writers or not"""

    @property
    def bound(self) -> int:
        """Loops of other kinds: thread axes."""
        return self.all_loops & ~(self.serial | self.parallel | self.vectorized | self.unrolled)

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


class PartFacts(LoopFacts):
    """Facts of one part; kept as long as its node, so it holds no schedule, and little to visit for
    the garbage collector."""

    __slots__ = (
        "affine",
        "aligned",
        "all_blocks",
        "all_loops",
        "annotated",
        "below",
        "bit",
        "chain",
        "extents",
        "first_inits",
        "firsts",
        "local_reduction",
        "nested",
        "once",
        "over_block",
        "over_loop",
        "parallel",
        "placed",
        "reduced",
        "rows",
        "serial",
        "single",
        "trips",
        "unrolled",
        "up",
        "variables",
        "vectorized",
        "views",
    )

    def __init__(self, part: NestPart, schedule: Any) -> None:
        self.variables, self.extents, self.firsts = part.variables, part.extents, part.firsts
        self.placed = part.blocks
        self.all_loops = (1 << len(part.variables)) - 1
        self.all_blocks = (1 << len(part.blocks)) - 1
        self.first_inits = _first_inits(part)
        """first block with an initialisation below each loop, -1 if none"""
        self.rows: Any = None
        """filled by `legality`"""
        self._read_loops(part)
        self._read_blocks(part, schedule)

    def _read_loops(self, part: NestPart) -> None:
        by_kind = [0, 0, 0, 0, 0]
        over = {"loop": 0, "block": 0, "sequence": 0, "other": 0}
        up: list[int] = []
        annotated = nested = single = 0
        here = 1
        for i, parent in enumerate(part.parents):
            if parent >= 0:
                nested |= here
                up.append(up[parent] | here)
            else:
                up.append(here)
            by_kind[part.kinds[i]] |= here
            over[part.bodies[i]] |= here
            if part.annotated[i]:
                annotated |= here
            if part.stops[i] - part.firsts[i] == 1:
                single |= here
            here <<= 1
        below = [1 << i for i in range(len(up))]
        for i in range(len(up) - 1, 0, -1):
            parent = part.parents[i]
            if parent >= 0:
                below[parent] |= below[i]
        self.bit = {variable: 1 << i for i, variable in enumerate(part.variables)}
        self.up, self.below = tuple(up), tuple(below)
        self.over_loop, self.over_block = over["loop"], over["block"]
        self.annotated, self.nested, self.single = annotated, nested, single
        self.serial, self.parallel = by_kind[SERIAL], by_kind[PARALLEL]
        self.vectorized, self.unrolled = by_kind[VECTORIZED], by_kind[UNROLLED]

    def _read_blocks(self, part: NestPart, schedule: Any) -> None:
        bit, extents = self.bit, self.extents
        chains: list[int] = []
        reductions: list[int] = []
        works: list[int] = []
        once: list[bool] = []
        views = tuple([block_view(place) for place in part.blocks])
        aligned = affine = local_reduction = 0
        here = 1
        for place, view, chain in zip(part.blocks, views, part.block_chains, strict=True):
            reduced = 0
            trips = 1
            for i in chain:
                trips *= extents[i]
            for variable in view.reduce_vars:
                reduced |= bit.get(variable, 0)
            chains.append(self.up[chain[-1]] if chain else 0)
            reductions.append(reduced)
            works.append(trips)
            once.append(trips == view.domain and not place.has_predicate)
            if place.facts.annotated:
                aligned |= here
            if _is_affine(schedule, place):
                affine |= here
                if place.facts.has_init and view.known_iters and not view.reduces_into_index:
                    local_reduction |= here
            here <<= 1
        self.views, self.chain, self.reduced = views, tuple(chains), tuple(reductions)
        self.trips, self.once = tuple(works), tuple(once)
        self.aligned, self.affine, self.local_reduction = aligned, affine, local_reduction


def _first_inits(part: NestPart) -> tuple[int, ...]:
    found = [-1] * len(part.variables)
    for index in range(len(part.blocks) - 1, -1, -1):
        if part.blocks[index].facts.has_init:
            for loop in part.block_chains[index]:
                found[loop] = index
    return tuple(found)


def _is_affine(schedule: Any, place: Placement) -> bool:
    """TVM's own flag: the bindings of the block are affine; it depends on the loops around alone."""
    return bool(cached_flags(schedule, place.facts.node)[0])


def cached_flags(schedule: Any, block: Any) -> list[Any]:
    """TVM's own flags of a block: affine binding, region cover, stage pipeline."""
    state = ffi.ScheduleGetState(schedule)
    return items(ffi.ScheduleStateGetCachedFlags(state, ffi.ScheduleStateGetSRef(state, block)))


def part_facts(part: NestPart, schedule: Any) -> PartFacts:
    """The facts of a part, which `schedule` holds; kept with the part."""
    found = part.facts
    if found is None:
        found = part.facts = PartFacts(part, schedule)
    return found  # type: ignore[no-any-return]
