"""The last tasks: vector lanes, threads, unrolling, and the initialisation of reductions.

In this order, since each freezes something: a vectorized loop is not changed any more, neither is a
parallel one, and after `DecomposeReduction` the compiler vectorizes and parallelises no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm.tirx import Add, BufferStore, Mul

from tirgym.harness.decisions.nests import (
    attempt,
    by_lane,
    closest_lanes,
    divisors,
    find,
    own_loops,
    reduces,
    tensorir,
)
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.walk import MAX_OPTIONS, Next, Question, Task
from tirgym.harness.program import Program
from tirgym.harness.tensorir.block_view import expression_size
from tirgym.harness.tensorir.nest import VECTORIZED, Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef, Transform
from tirgym.harness.transforms.decompose_reduction import DecomposeReduction
from tirgym.harness.transforms.fuse import Fuse
from tirgym.harness.transforms.parallel import Parallel
from tirgym.harness.transforms.split import Split
from tirgym.harness.transforms.unroll_pragma import UnrollPragma
from tirgym.harness.transforms.vectorize import Vectorize

__all__ = [
    "UNROLL_STEPS",
    "Initialise",
    "Marks",
    "Parallelise",
    "Unrolling",
    "Vectorise",
    "unrolled_size",
]

MAX_LANES = 64
UNROLL_STEPS = (0, 16, 64, 512)
"""MetaSchedule's limits for CPUs."""
MAX_UNROLLED = 24_000
"""Expression nodes of the unrolled program at most; a call in a vector counts once for each lane.
Beyond it compilers take many seconds."""
MAX_CHAIN = 16
"""Unrolled comparisons in a row at most."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Opens the last tasks for every block and nest that the program has by now."""

    lanes: int
    threads: int

    def ask(self, program: Program) -> Question | None:
        """Nothing."""
        return None

    def take(self, program: Program, value: int | None) -> Next:
        """The tasks, block by block and nest by nest."""
        names = [block.facts.name for block in tensorir(program).nest.blocks]
        names = [name for name in names if names.count(name) == 1]
        tasks: list[Task] = [Vectorise(name, self.lanes) for name in names]
        threaded = tuple(names) if self.threads > 1 else ()
        tasks.append(Parallelise(threaded, self.threads))
        tasks += [Initialise(name) for name in _by_work(tensorir(program), names)]
        return Next(program, tuple(tasks))


def _by_work(program: TensorIRProgram, names: list[str]) -> list[str]:
    """The longest first: the cap on blocks may leave no room for all."""
    blocks = {name: find(program, name) for name in names}
    trips = {n: program.facts.trips[b.index] if b is not None else 0 for n, b in blocks.items()}
    return sorted(names, key=lambda name: -trips[name])


@dataclass(frozen=True, slots=True)
class Vectorise:
    """Vector lanes of a block's innermost loop: powers of two.

    LLVM takes vectors of other lengths apart, 24 lanes of a matmul ran 25 times slower than 8. Where
    no power of two divides the loop it is better left to LLVM's own vectorizer.
    """

    block: str
    lanes: int

    def ask(self, program: Program) -> Question | None:
        """How many lanes."""
        state = tensorir(program)
        loop = _innermost(state, self.block)
        if loop is None:
            return None
        extent = state.nest.loops[loop].extent
        counts = [n for n in divisors(extent, MAX_LANES) if n & (n - 1) == 0]
        if len(counts) < 2 or not self._possible(state, loop, extent, counts[1]):
            return None
        options = (Option("none", 1), *(Option(f"{n} lanes", n) for n in counts[1:]))
        return Question(
            f"{self.block}.vector",
            DecisionKind.VECTOR,
            f"{self.block}: vector lanes of a loop of {extent}",
            options,
            0 if self._left_to_llvm(state, extent, counts) else closest_lanes(counts, self.lanes),
            NodeRef("loop", loop),
            self.block,
        )

    def _left_to_llvm(self, program: TensorIRProgram, extent: int, counts: list[int]) -> bool:
        """Whether LLVM's vectors are longer, since it need not divide the loop: it adds a remainder."""
        block = find(program, self.block)
        return block is not None and counts[-1] < self.lanes < extent and not by_lane(block)

    def take(self, program: Program, value: int | None) -> Next:
        """Split off the lanes and mark them."""
        state = tensorir(program)
        loop = _innermost(state, self.block)
        if value is None or value < 2 or loop is None:
            return Next(state)
        extent = state.nest.loops[loop].extent
        return Next(attempt(state, *self._steps(loop, extent, value)) or state)

    def _possible(self, program: TensorIRProgram, loop: int, extent: int, lanes: int) -> bool:
        """Whether any lanes are legal: a loop that is short enough is asked as it is, without a split."""
        if extent <= MAX_LANES:
            return program.is_legal(Vectorize(loop))
        return attempt(program, *self._steps(loop, extent, lanes)) is not None

    def _steps(self, loop: int, extent: int, lanes: int) -> tuple[Transform, ...]:
        if lanes == extent:
            return (Vectorize(loop),)
        return (Split(loop, lanes), Vectorize(loop + 1))


def _innermost(program: TensorIRProgram, name: str) -> int | None:
    block = find(program, name)
    if block is None:
        return None
    own = own_loops(program.nest, block)
    return own[-1] if own and program.nest.loops[own[-1]].kind != VECTORIZED else None


@dataclass(frozen=True, slots=True)
class Parallelise:
    """How many outer loops of a nest are fused and spread over the threads.

    Each nest is asked about once, for its first block. The loops are marked after the question
    about unrolling, since no pragma can be put on them afterwards.
    """

    blocks: tuple[str, ...]
    """blocks to ask about"""
    threads: int
    marked: tuple[str, ...] = ()
    """blocks whose outermost loop will be parallel"""

    def ask(self, program: Program) -> Question | None:
        """How many loops."""
        state = tensorir(program)
        root = _root(state, self.blocks[0]) if self.blocks else None
        if root is None:
            return None
        options = [Option("one thread", 0)]
        extents: list[int] = []
        fused: TensorIRProgram | None = state
        for count in range(1, MAX_OPTIONS):
            if count > 1 and fused is not None:
                fused = attempt(fused, Fuse(root))
            if fused is None or not fused.is_legal(Parallel(root)):
                break
            extents.append(fused.nest.loops[root].extent)
            options.append(Option(f"{extents[-1]} iterations of {count} loops", count))
        if not extents:
            return None
        enough = [i for i, extent in enumerate(extents) if extent >= 4 * self.threads]
        return Question(
            f"{self.blocks[0]}.parallel",
            DecisionKind.PARALLEL,
            f"{self.blocks[0]}: outer loops that are fused and spread over {self.threads} threads",
            tuple(options),
            1 + (enough[0] if enough else extents.index(max(extents))),
            NodeRef("loop", root),
            self.blocks[0],
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Fuse, and go on with the next nest."""
        state, marked = tensorir(program), self.marked
        if not self.blocks:
            return Next(state, (Unrolling(marked),))
        root = _root(state, self.blocks[0])
        if value and root is not None:
            marked = (*marked, self.blocks[0])
            for _ in range(value - 1):
                state = state.apply(Fuse(root))
        return Next(state, (Parallelise(self.blocks[1:], self.threads, marked),))


def _root(program: TensorIRProgram, name: str) -> int | None:
    """The outermost loop of a block that is the first in it."""
    block = find(program, name)
    if block is None or not block.chain:
        return None
    root = block.chain[0]
    return root if program.nest.loops[root].blocks[0] == block.index else None


@dataclass(frozen=True, slots=True)
class Unrolling:
    """How many iterations the code generator may unroll, for the whole program."""

    parallel: tuple[str, ...] = ()
    """blocks whose outermost loop becomes parallel"""

    def ask(self, program: Program) -> Question | None:
        """The limit."""
        state = tensorir(program)
        steps = [n for n in UNROLL_STEPS if unrolled_size(state, n) <= MAX_UNROLLED or n == 0]
        return Question(
            "program.unroll",
            DecisionKind.UNROLL,
            "iterations that the code generator may unroll in each nest",
            tuple(Option(f"up to {n}" if n else "none", n) for n in steps),
            min(2, len(steps) - 1),
            NodeRef("program", 0),
        )

    def take(self, program: Program, value: int | None) -> Next:
        """A pragma on each outermost loop; then mark those that are parallel."""
        state = tensorir(program)
        if value:
            for loop in [loop.index for loop in state.nest.loops if loop.parent < 0]:
                state = attempt(state, UnrollPragma(loop, value)) or state
        for name in self.parallel:
            root = _root(state, name)
            if root is not None:
                state = state.apply(Parallel(root))
        return Next(state)


def unrolled_size(program: TensorIRProgram, limit: int, blocks: Sequence[int] | None = None) -> int:
    """About how many expression nodes the program, or those `blocks` of it, have once inner loops
    are unrolled up to `limit` iterations."""
    size = 0
    chosen = program.nest.blocks if blocks is None else [program.nest.blocks[i] for i in blocks]
    for block in chosen:
        copies = lanes = 1
        for i in reversed(block.chain):
            loop = program.nest.loops[i]
            if loop.kind == VECTORIZED:
                lanes = loop.extent
            elif copies * loop.extent > limit:
                break
            else:
                copies *= loop.extent
        weight = lanes if by_lane(block) else 1
        size += copies * weight * expression_size(block.facts.node)
        if lanes == 1 and MAX_CHAIN < _chain(program, block) <= copies:
            return MAX_UNROLLED + 1
    return size


def _chain(program: TensorIRProgram, block: Block) -> int:
    """Iterations of the innermost loop if the block reduces over it by anything but a sum.

    Chains of comparisons through memory, once unrolled, have kept LLVM busy for minutes.
    """
    if not block.chain or not block.facts.has_init:
        return 0
    inner = block.chain[-1]
    body = block.facts.node.body
    plain = type(body) is BufferStore and type(body.value) in (Add, Mul)
    return program.nest.loops[inner].extent if reduces(program, block, inner) and not plain else 0


@dataclass(frozen=True, slots=True)
class Initialise:
    """Take the initialisation of a reduction out of the outermost loop that it reduces over."""

    block: str

    def ask(self, program: Program) -> Question | None:
        """Keep it inside, or take it out."""
        state = tensorir(program)
        loop = self._loop(state)
        if loop is None or not state.is_legal(DecomposeReduction(loop)):
            return None
        block = find(state, self.block)
        trips = math.prod(state.nest.loops[i].extent for i in block.chain) if block else 1
        return Question(
            f"{self.block}.init",
            DecisionKind.INIT,
            f"{self.block}: where its initialisation runs ({trips} iterations in all)",
            (Option("inside, in the first iteration", 0), Option("in a nest of its own before", 1)),
            1,
            NodeRef("loop", loop),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Decompose the reduction."""
        loop = self._loop(tensorir(program))
        if not value or loop is None:
            return Next(program)
        return Next(program.apply(DecomposeReduction(loop)))

    def _loop(self, program: TensorIRProgram) -> int | None:
        """The outermost loop that the block reduces over, if the block is the first reduction in it."""
        block: Block | None = find(program, self.block)
        if block is None or not block.facts.has_init:
            return None
        reduced = [i for i in block.chain if program.facts.reduced[block.index] >> i & 1]
        if not reduced or program.facts.first_init[reduced[0]] != block.index:
            return None
        return reduced[0]
