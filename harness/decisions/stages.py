"""Tasks about whole blocks: inlining, partial sums, where a block is computed, how it is tiled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tirgym.harness.decisions.contractions import is_contraction, spatial_axes
from tirgym.harness.decisions.nests import (
    attempt,
    calls,
    closest,
    divisors,
    find,
    has_reuse,
    loop_name,
    own_loops,
    reduces,
    tensorir,
)
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.tiling import begin_tiling, in_order
from tirgym.harness.decisions.walk import MAX_OPTIONS, Next, Question
from tirgym.harness.program import Program
from tirgym.harness.static_ops import block_ops
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.cache_write import CacheWrite
from tirgym.harness.transforms.compute_at import ComputeAt
from tirgym.harness.transforms.compute_inline import ComputeInline
from tirgym.harness.transforms.rfactor import RFactor
from tirgym.harness.transforms.split import Split

__all__ = ["Inline", "Locate", "Partial", "Sketch", "consumers_of", "epilogue", "producers_of"]

WIDE = 1024
"""Results from which a contraction has enough of them to fill vectors."""
MAX_PLACES = 6
"""Loops that a block is offered to be computed in; further in, tiles are too small to keep lanes."""


def consumers_of(program: TensorIRProgram, block: Block) -> list[Block]:
    """Blocks that read what `block` writes."""
    return [program.nest.blocks[i] for i in program.facts.consumers[block.index]]


def producers_of(program: TensorIRProgram, block: Block) -> list[Block]:
    """Blocks that write what `block` reads."""
    return [program.nest.blocks[i] for i in program.facts.producers[block.index]]


@dataclass(frozen=True, slots=True)
class Inline:
    """Compute a block anew where it is read. Not asked where it costs nothing.

    It costs nothing with one consumer that reads each element once. Otherwise the static choice is
    MetaSchedule's: inline unless the block calls a function or has a guard; and keep what a
    contraction, which reads it again in each of its tiles, would have to compute.
    """

    block: str

    def ask(self, program: Program) -> Question | None:
        """Keep or inline."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or not state.is_legal(ComputeInline(block.index)):
            return None
        consumers = consumers_of(state, block)
        domain = state.facts.views[block.index].domain
        free = len(consumers) == 1 and state.facts.trips[consumers[0].index] <= domain
        inline = Option("compute it where it is read", 1)
        ops = block_ops(block.facts.node)
        again = ops.vector_ops + ops.divisions > 0 and any(
            is_contraction(state, consumer) for consumer in consumers
        )
        return Question(
            f"{self.block}.inline",
            DecisionKind.INLINE,
            f"{self.block}: keep it in a buffer, or compute it anew where it is read?",
            (inline,) if free else (Option("keep", 0), inline),
            0 if free or again or calls(block.facts.node.body) else 1,
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Inline it if so decided."""
        block = find(tensorir(program), self.block)
        if not value or block is None:
            return Next(program)
        return Next(program.apply(ComputeInline(block.index)))


@dataclass(frozen=True, slots=True)
class Partial:
    """Split a reduction into partial results along its last loop, which then become vector lanes."""

    block: str
    lanes: int

    def ask(self, program: Program) -> Question | None:
        """How many partial results."""
        state = tensorir(program)
        loop = self._loop(state)
        block = find(state, self.block)
        if loop is None or block is None or _is_wide(state, block):
            return None
        extent = state.nest.loops[loop].extent
        counts = divisors(extent, 64)[:MAX_OPTIONS]
        if len(counts) < 2 or self._made(state, loop, counts[1]) is None:
            return None
        worthwhile = counts[-1] >= self.lanes // 2 and not has_reuse(block)
        options = (Option("one sum", 1), *(Option(f"{n} partial sums", n) for n in counts[1:]))
        return Question(
            f"{self.block}.rfactor",
            DecisionKind.RFACTOR,
            f"{self.block}: partial results along {loop_name(state.nest, loop)}",
            options,
            self._whole_vectors(counts, extent) if worthwhile else 0,
            NodeRef("loop", loop),
            self.block,
        )

    def _whole_vectors(self, counts: list[int], extent: int) -> int:
        """Position of the count that makes short chains, in whole vectors if that is possible.

        n terms in p partial results wait for n / p steps and then for p more to join them: least
        for p = √n.
        """
        power = max(min(n & -n, self.lanes) for n in counts)
        whole = [n for n in counts if min(n & -n, self.lanes) == power]
        return counts.index(whole[closest(whole, max(1, math.isqrt(extent)))])

    def take(self, program: Program, value: int | None) -> Next:
        """Split and factor."""
        state = tensorir(program)
        loop = self._loop(state)
        if value is None or value < 2 or loop is None:
            return Next(state)
        return Next(self._made(state, loop, value) or state)

    def _loop(self, program: TensorIRProgram) -> int | None:
        """The last loop that the block reduces over, if it has one to itself."""
        block = find(program, self.block)
        if block is None or not block.facts.has_init:
            return None
        found = [i for i in own_loops(program.nest, block) if reduces(program, block, i)]
        return found[-1] if found else None

    def _made(self, program: TensorIRProgram, loop: int, count: int) -> TensorIRProgram | None:
        if count == program.nest.loops[loop].extent:
            return attempt(program, RFactor(loop))
        return attempt(program, Split(loop, count), RFactor(loop + 1))


def _is_wide(program: TensorIRProgram, block: Block) -> bool:
    """Whether a contraction makes so many results that none need be made of partial sums."""
    results = math.prod(axis.extent for axis in spatial_axes(program, block))
    return results >= WIDE and is_contraction(program, block)


def epilogue(program: TensorIRProgram, producer: Block) -> Block | None:
    """The elementwise block that alone reads what the reduction `producer` makes, if there is one."""
    facts = program.facts
    if not producer.facts.has_init or not has_reuse(producer):
        return None
    consumers = consumers_of(program, producer)
    if len(consumers) != 1 or consumers[0].facts.has_init:
        return None
    consumer = consumers[0]
    spatial = 1
    for kind, extent in zip(producer.facts.iter_types, producer.facts.iter_extents, strict=True):
        spatial *= extent if kind == 0 else 1
    alone = all(len(program.nest.loops[i].blocks) == 1 for i in consumer.chain)
    same = facts.views[consumer.index].domain == spatial
    return consumer if alone and same and facts.views[consumer.index].spatial_only else None


@dataclass(frozen=True, slots=True)
class Locate:
    """Compute a block inside a loop of its consumers, or in a nest of its own.

    The static choice is the innermost place where nothing is computed twice and the innermost loop
    of the block stays whole, so that it can be vectorized; a nest of its own for a contraction, whose
    tiles need its other loops too.
    """

    block: str
    lanes: int = 0
    """of a copy: the innermost loop need not stay whole as long as it fills vectors"""

    def ask(self, program: Program) -> Question | None:
        """Which loop, by rank from the outside."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or epilogue(state, block) is not None:
            return None
        options = [Option("a nest of its own", 0)]
        free: list[int] = []
        before, loops = _work(state), _shared(state, block)
        for rank, loop in enumerate(loops, 1):
            moved = attempt(state, ComputeAt(block.index, loop))
            if moved is None or not _known_extents(moved):
                continue
            grown = _work(moved) / before
            more = "" if grown <= 1 else f", {grown:.2g} times the work"
            options.append(Option(f"inside {loop_name(state.nest, loop)}{more}", rank))
            if grown <= 1:
                free.append(len(options) - 1)
        default = 0
        if not is_contraction(state, block):
            stays = (i for i in reversed(free) if self._whole(state, block, loops, options[i]))
            default = next(stays, 0)
        return Question(
            f"{self.block}.location",
            DecisionKind.LOCATION,
            f"{self.block}: where is it computed?",
            tuple(options[:MAX_OPTIONS]),
            default,
            NodeRef("block", block.index),
            self.block,
        )

    def _whole(
        self, state: TensorIRProgram, block: Block, loops: list[int], option: Option
    ) -> bool:
        """Whether the innermost loop of the block stays whole, or fills vectors, by that option."""
        moved = _moved(state, block, loops[option.value - 1])
        inner = _innermost(moved, self.block) if moved is not None else (0, -1)
        return inner == _innermost(state, self.block) or inner[0] >= self.lanes > 0

    def take(self, program: Program, value: int | None) -> Next:
        """Move it."""
        state = tensorir(program)
        block = find(state, self.block)
        if not value or block is None:
            return Next(state)
        loop = _shared(state, block)[value - 1]
        return Next(_moved(state, block, loop) or state)


def _moved(program: TensorIRProgram, block: Block, loop: int) -> TensorIRProgram | None:
    """`block` computed in `loop`, its own loops in the order that they had; None if illegal.

    The compiler makes them anew in the order of the block's iterators, which puts the lanes of
    partial sums outside.
    """
    before = [_iterator(program, block, i) for i in own_loops(program.nest, block)]
    moved = attempt(program, ComputeAt(block.index, loop))
    found = find(moved, block.facts.name) if moved is not None else None
    if moved is None or found is None:
        return None
    own = own_loops(moved.nest, found)
    labels = [_iterator(moved, found, i) for i in own]
    if not own or len(set(before)) < len(before) or not set(labels) <= set(before):
        return moved
    return in_order(moved, own[0], [(before.index(label), 0) for label in labels])


def _iterator(program: TensorIRProgram, block: Block, loop: int) -> int:
    """The one iterator of `block` that `loop` drives, -1 if there is none or are several."""
    var = program.nest.loops[loop].var
    found = [i for i, binding in enumerate(block.bindings) if var in binding.coefficients]
    return found[0] if len(found) == 1 else -1


def _work(program: TensorIRProgram) -> int:
    """Block instances that run; `Facts.work` without the rest of the facts."""
    parts = [entry.part for entry in program.nest.parts]
    return sum(
        math.prod([part.extents[i] for i in chain])
        for part in parts
        for chain in part.shape.block_chains
    )


def _known_extents(program: TensorIRProgram) -> bool:
    """Whether every loop has a constant extent, other than 0."""
    return all(extent > 0 for entry in program.nest.parts for extent in entry.part.extents)


def _innermost(program: TensorIRProgram, name: str) -> tuple[int, int]:
    """Extent of the innermost loop of a block's own, 0 without one, and the iterator it drives."""
    block = find(program, name)
    own = own_loops(program.nest, block) if block is not None else ()
    if block is None or not own:
        return 0, -1
    return program.nest.loops[own[-1]].extent, _iterator(program, block, own[-1])


def _shared(program: TensorIRProgram, block: Block) -> list[int]:
    """Loops around every consumer, outermost first, as many as are offered."""
    consumers = consumers_of(program, block)
    if not consumers:
        return []
    chains = [set(consumer.chain) for consumer in consumers]
    return [i for i in consumers[0].chain if all(i in chain for chain in chains)][:MAX_PLACES]


PLAIN, TILED, OUTER, INNER, REGISTERS = range(5)
"""Sketches: loops as they are; tiled; tiled with the result written through the tile at two levels;
one tile that stays in registers for the whole sum."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """The structure of a block's own loops.

    Reductions that read elements several times get the layout SSRSRS or SSRS, others SRS, maps SS.
    What follows a reduction, an elementwise block or a copy out of a write cache, may move into the
    tile below the first or the second level of loops (MetaSchedule's multi-level tiling).
    """

    block: str
    lanes: int
    powers: bool = False
    lane_axis: int | None = None
    """number of the own loop that runs along vector lanes; None: the last one"""

    def ask(self, program: Program) -> Question | None:
        """Which sketch."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or self._is_epilogue(state, block):
            return None
        layout = self._layout(state, block)
        if not layout or begin_tiling(state, self.block, layout, lanes=self.lanes) is None:
            return None
        options = [Option("loops as they are", PLAIN), Option(f"tiled {layout}", TILED)]
        if layout == "SSRSRS":
            follower = epilogue(state, block)
            stage = "a write cache" if follower is None else follower.facts.name
            if follower is not None or state.is_legal(CacheWrite(block.index)):
                options.append(Option(f"tiled {layout}, {stage} at level 1", OUTER))
                options.append(Option(f"tiled {layout}, {stage} at level 2", INNER))
            after = "" if follower is None else f", {follower.facts.name} at level 2"
            options.append(Option(f"tiled SSRS{after}", REGISTERS))
        default = len(options) - 1 if layout == "SSRSRS" else 0
        return Question(
            f"{self.block}.sketch",
            DecisionKind.SKETCH,
            f"{self.block}: structure of its loops",
            tuple(options),
            default,
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Stage if so decided, and ask for the tiles."""
        state = tensorir(program)
        block = find(state, self.block)
        if not value or block is None:
            return Next(state)
        layout = "SSRS" if value == REGISTERS else self._layout(state, block)
        attach: tuple[str, int] | None = None
        follower = epilogue(state, block)
        if value == REGISTERS and follower is not None:
            attach = (follower.facts.name, INNER - TILED)
        if value in (OUTER, INNER):
            if follower is None:
                state = state.apply(CacheWrite(block.index))
                staged = find(state, self.block)
                assert staged is not None  # the cache is a new block; this one keeps its name
                follower = consumers_of(state, staged)[0]
            attach = (follower.facts.name, value - TILED)
        tile = begin_tiling(
            state,
            self.block,
            layout,
            lanes=self.lanes,
            powers=self.powers,
            attach=attach,
            lane_axis=self.lane_axis,
        )
        return Next(state, () if tile is None else (tile,))

    def _layout(self, program: TensorIRProgram, block: Block) -> str:
        """The tiling structure, "" if there is nothing to tile."""
        own = [i for i in own_loops(program.nest, block) if program.nest.loops[i].extent > 1]
        reduced = [i for i in own if reduces(program, block, i)]
        spatial = len(own) - len(reduced)
        if block.facts.has_init and reduced and spatial:
            return "SSRSRS" if has_reuse(block) else "SRS"
        return "SS" if spatial > 1 and not reduced else ""

    def _is_epilogue(self, program: TensorIRProgram, block: Block) -> bool:
        """Whether a producer will decide about this block."""
        producers = [program.nest.blocks[i] for i in program.facts.producers[block.index]]
        for producer in producers:
            follower = epilogue(program, producer)
            if follower is not None and follower.index == block.index:
                return True
        return False
