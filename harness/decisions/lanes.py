"""How a contraction meets the vector unit: which loop runs along the lanes, what is staged for it.

Every instruction works on whole vectors if what is read and written along the lanes is contiguous.
Where it is not, an operand is copied with its dimensions swapped, and so is the result (Goto and van
de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 2008; Georganas et al.,
"Anatomy of high-performance deep learning convolutions", SC 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tirgym.harness.decisions.contractions import (
    SpatialAxis,
    along,
    is_contraction,
    operands,
    row_axes,
    spatial_axes,
)
from tirgym.harness.decisions.nests import attempt, find, tensorir
from tirgym.harness.decisions.padding import VECTORS, Pad, padded
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.register_tile import best_lanes
from tirgym.harness.decisions.stages import Locate, Sketch, producers_of
from tirgym.harness.decisions.transposes import Transpose
from tirgym.harness.decisions.walk import Next, Question, Task
from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import Access, Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.cache_read import CacheRead
from tirgym.harness.transforms.cache_write import CacheWrite
from tirgym.harness.transforms.pad_axis import PadAxis
from tirgym.harness.transforms.transform_layout import TransformLayout

__all__ = ["Lanes"]

MIN_LANES = 4
"""Shortest loop that may run along the lanes."""
SWAP_CYCLES = 1.5
"""Of one element that is copied across its dimensions, one by one."""
PANEL_BYTES = 1 << 19
"""Size of an operand from which it is copied panel by panel without being asked."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Opens the questions about a block's own loops; first, for a contraction, which spatial loop
    runs along vector lanes, innermost in every tile.

    The static choice takes the least time for arithmetic and copies together.
    """

    block: str
    lanes: int
    powers: bool = False

    def ask(self, program: Program) -> Question | None:
        """Which loop."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or not is_contraction(state, block):
            return None
        axes = [
            axis
            for axis in spatial_axes(state, block)
            if axis.extent >= MIN_LANES and _stageable(state, self.block, axis)
        ]
        if not axes:
            return None
        costs = [self._cycles(state, block, axis) for axis in axes]
        return Question(
            f"{self.block}.lanes",
            DecisionKind.LANES,
            f"{self.block}: the loop that runs along vector lanes",
            tuple(Option(f"{a.name} of {a.extent}{_copied(block, a)}", a.number) for a in axes),
            costs.index(min(costs)),
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Stage what lies otherwise; then padding, structure, and where the copies are made."""
        state = tensorir(program)
        block = find(state, self.block)
        if value is None or block is None:
            return Next(state, (Sketch(self.block, self.lanes, self.powers),))
        known = tuple(b.facts.name for b in state.nest.blocks)
        axes = spatial_axes(state, block)
        lane = next(axis for axis in axes if axis.number == value)
        state = _staged(state, self.block, lane) or state
        rows = [axis.number for axis in row_axes(block, axes, lane)][:1]
        tasks: list[Task] = [Pad(self.block, n, value, self.lanes) for n in (value, *rows)]
        tasks.append(Pack(self.block, value))
        tasks.append(Sketch(self.block, self.lanes, self.powers, value))
        tasks.append(Copies(self.block, known, self.lanes))
        return Next(state, tuple(tasks))

    def _cycles(self, state: TensorIRProgram, block: Block, lane: SpatialAxis) -> float:
        """About the cycles for arithmetic and copies if `lane` runs along the lanes."""
        axes = spatial_axes(state, block)
        rows = tuple(axis.extent for axis in row_axes(block, axes, lane))
        extents = {lane.extent}
        for multiple in (n * self.lanes for n in VECTORS):
            pad = PadAxis(block.index, lane.iterator, multiple)
            if multiple <= 2 * lane.extent and state.is_legal(pad):
                extents.add(padded(lane.extent, multiple))
        cycles = min(e * best_lanes(e, self.lanes, rows)[0] for e in extents)
        cycles *= math.prod(block.facts.iter_extents) / lane.extent
        for access in _swapped(block, lane):
            cycles += SWAP_CYCLES * math.prod(access.buffer.shape)
        scattered = [a for _, a in operands(block) if along(a, lane.handle) == (False, False, -1)]
        return cycles * (self.lanes / 2) ** len(scattered)


def _swapped(block: Block, lane: SpatialAxis) -> list[Access]:
    """Operands and results that lie across the lanes."""
    accesses = [access for _, access in operands(block)] + list(block.facts.writes)
    return [access for access in accesses if along(access, lane.handle).swap >= 0]


def _copied(block: Block, lane: SpatialAxis) -> str:
    names = ", ".join(dict.fromkeys(a.buffer.name for a in _swapped(block, lane)))
    return f", a copy of {names} across" if names else ""


def _staged(state: TensorIRProgram, name: str, lane: SpatialAxis) -> TensorIRProgram | None:
    """The program with everything contiguous along `lane` that a swap of dimensions makes so."""
    block = find(state, name)
    if block is None or len(block.facts.writes) != 1:
        return None
    found: TensorIRProgram | None = state
    for _ in block.facts.reads:
        across = _across(found, name, lane) if found is not None else None
        if found is None or across is None:
            break
        found = _read_swapped(found, name, *across)
    swap = along(block.facts.writes[0], lane.handle).swap
    return _write_swapped(found, name, swap) if found is not None and swap >= 0 else found


def _across(state: TensorIRProgram, name: str, lane: SpatialAxis) -> tuple[int, int] | None:
    """Number of the first operand that lies across the lanes, and its dimension along them."""
    block = find(state, name)
    for number, access in operands(block) if block is not None else ():
        swap = along(access, lane.handle).swap
        if swap >= 0:
            return number, swap
    return None


def _read_swapped(
    state: TensorIRProgram, name: str, number: int, dimension: int
) -> TensorIRProgram | None:
    """Block `name` reads a buffer whose `dimension` is the last one."""
    made = _made_apart(state, name, number)
    return attempt(made, _swap_of_read(made, name, number, dimension)) if made else None


def _made_apart(state: TensorIRProgram, name: str, number: int) -> TensorIRProgram | None:
    """One block makes operand `number` for block `name` alone: if it is not so, a copy is made."""
    block = find(state, name)
    assert block is not None  # it was found before
    buffer = block.facts.reads[number].buffer.handle
    makers = state.facts.writers.get(buffer, ())
    if len(makers) == 1 and state.facts.readers[buffer] == (block.index,):
        return state
    copied = attempt(state, CacheRead(block.index, number))
    return copied if copied is not None and find(copied, name) is not None else None


def _swap_of_read(
    state: TensorIRProgram, name: str, number: int, dimension: int
) -> TransformLayout:
    block = find(state, name)
    assert block is not None  # it was found before
    maker = state.facts.writers[block.facts.reads[number].buffer.handle][0]
    return TransformLayout(maker, dimension, 1)


def _write_swapped(state: TensorIRProgram, name: str, dimension: int) -> TensorIRProgram | None:
    """Block `name` writes a buffer whose `dimension` is the last one."""
    made = _written_apart(state, name)
    block = find(made, name) if made is not None else None
    if made is None or block is None:
        return None
    return attempt(made, TransformLayout(block.index, dimension, 1))


def _written_apart(state: TensorIRProgram, name: str) -> TensorIRProgram | None:
    """Block `name` writes no output of the kernel: if it does, the result is copied there."""
    block = find(state, name)
    assert block is not None  # it was found before
    apart = state.facts.makers >> block.index & 1
    return state if apart else attempt(state, CacheWrite(block.index))


def _stageable(state: TensorIRProgram, name: str, lane: SpatialAxis) -> bool:
    """Whether `_staged` makes a program.

    The copies are made, for the number of loops and blocks has a limit; layouts, which take longest,
    are only asked about, unless one could depend on another.
    """
    block = find(state, name)
    if block is None or len(block.facts.writes) != 1:
        return False
    loads = operands(block)
    if len({read.buffer.handle for read in block.facts.reads}) < len(block.facts.reads) or len(
        {number for number, _ in loads}
    ) < len(loads):
        return _staged(state, name, lane) is not None
    found: TensorIRProgram | None = state
    for number, access in loads:
        swap = along(access, lane.handle).swap
        if swap < 0:
            continue
        found = _made_apart(found, name, number) if found is not None else None
        if found is None or not found.is_legal(_swap_of_read(found, name, number, swap)):
            return False
    swap = along(block.facts.writes[0], lane.handle).swap
    if swap < 0:
        return True
    found = _written_apart(found, name) if found is not None else None
    block = find(found, name) if found is not None else None
    return (
        found is not None
        and block is not None
        and found.is_legal(TransformLayout(block.index, swap, 1))
    )


@dataclass(frozen=True, slots=True)
class Pack:
    """Copy the operand that is read along the lanes, panel by panel, so that each panel is contiguous.

    Only asked of what lies in memory as the kernel was given it.
    """

    block: str
    axis: int
    """number of the loop along the lanes"""

    def ask(self, program: Program) -> Question | None:
        """Copy, or read in place."""
        state = tensorir(program)
        block = find(state, self.block)
        number = self._operand(state, block)
        if block is None or number is None:
            return None
        if not state.is_legal(CacheRead(block.index, number)):
            return None
        buffer = block.facts.reads[number].buffer
        return Question(
            f"{self.block}.pack",
            DecisionKind.PACK,
            f"{self.block}: read {buffer.name} in place, or copy it panel by panel?",
            (Option("in place", 0), Option("copy it", 1)),
            int(buffer.nbytes >= PANEL_BYTES),
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Copy it."""
        state = tensorir(program)
        block = find(state, self.block)
        number = self._operand(state, block)
        if not value or block is None or number is None:
            return Next(state)
        return Next(state.apply(CacheRead(block.index, number)))

    def _operand(self, state: TensorIRProgram, block: Block | None) -> int | None:
        """The read that is contiguous along the lanes, if no block makes it."""
        if block is None:
            return None
        lane = next((a for a in spatial_axes(state, block) if a.number == self.axis), None)
        for number, access in operands(block) if lane is not None else ():
            made = access.buffer.handle in state.facts.writers or len(access.region) < 2
            if not made and lane is not None and along(access, lane.handle).contiguous:
                return number
        return None


@dataclass(frozen=True, slots=True)
class Copies:
    """Opens the questions where and how each copy that was made for a block is computed."""

    block: str
    known: tuple[str, ...]
    """blocks that there were before"""
    lanes: int

    def ask(self, program: Program) -> Question | None:
        """Nothing."""
        return None

    def take(self, program: Program, value: int | None) -> Next:
        """Their locations, and how those are made that turn an operand."""
        state = tensorir(program)
        block = find(state, self.block)
        makers = producers_of(state, block) if block is not None else []
        names = [maker.facts.name for maker in makers]
        new = [name for name in names if name not in self.known]
        tasks: list[Task] = []
        for name in new:
            tasks += [Locate(name, self.lanes), Transpose(name, self.lanes)]
        return Next(state, tuple(tasks))
