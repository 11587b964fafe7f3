"""`Tile`: perfect tiles, asked factor by factor, innermost first; the product is right by construction.

A layout such as "SSRSRS" names the levels of the tiled nest, outermost first: S for every spatial
loop of the block, R for every loop it reduces over (Zheng et al., "Ansor", OSDI 2020, section 4.1).
What is left of each loop is asked for its factor at each of its levels but the first, which takes
the rest. Each answer splits the loop and moves the new one into its place at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from tirgym.harness.decisions.contractions import row_axes, spatial_axes
from tirgym.harness.decisions.nests import (
    attempt,
    closest,
    closest_lanes,
    divisors,
    find,
    numbers,
    own_loops,
    reduces,
    tensorir,
)
from tirgym.harness.decisions.point import DecisionKind
from tirgym.harness.decisions.register_tile import best_lanes, more_rows, vectors_of
from tirgym.harness.decisions.walk import MAX_OPTIONS, Next, Question
from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.reorder import Reorder
from tirgym.harness.transforms.reverse_compute_at import ReverseComputeAt
from tirgym.harness.transforms.split import Split

__all__ = ["Attach", "Tile", "begin_tiling", "in_order"]

MAX_FACTOR = 64
"""Largest factor that is offered."""
VECTORS, REGISTER_LANES, REGISTER_ROWS, EVERYTHING = 0, -1, -2, 1 << 30
"""Goals that are no number: whole vectors; along the lanes and along the rows of a tile that fits the
registers."""

Label = tuple[int, int]
"""Level in the layout, number of the axis."""


class Axis(NamedTuple):
    """One loop of the block before it was tiled."""

    name: str
    kind: str
    """"S" or "R" """


@dataclass(frozen=True, slots=True)
class Attach:
    """Move a block into the tile of its producer, below `outside` of the tile's loops."""

    block: str
    producer: str
    outside: int

    def ask(self, program: Program) -> Question | None:
        """Nothing: it was decided with the sketch."""
        return None

    def take(self, program: Program, value: int | None) -> Next:
        """Move it, unless there is no loop to move it to or the move is illegal."""
        state = tensorir(program)
        block, producer = find(state, self.block), find(state, self.producer)
        if block is None or producer is None or self.outside < 1:
            return Next(state)
        own = own_loops(state.nest, producer)
        if len(own) < self.outside:
            return Next(state)
        moved = attempt(state, ReverseComputeAt(block.index, own[self.outside - 1]))
        return Next(moved or state)


@dataclass(frozen=True, slots=True)
class Tile:
    """The factor of one axis at one level, then the next; `labels` name the own loops in order."""

    block: str
    layout: str
    axes: tuple[Axis, ...]
    labels: tuple[Label, ...]
    pending: tuple[Label, ...]
    """questions to come"""
    goals: tuple[int, ...]
    """about the static choice of the factor for each of `pending`, or one of the goals by name"""
    lanes: int
    """elements of a vector register"""
    rows: tuple[int, ...] = ()
    """axes along which a vector that was loaded is used again, the innermost first"""
    powers: bool = False
    """offer powers of two alone"""
    attach: tuple[str, int] | None = None
    """a block that moves into the finished tile, below the loops of so many levels"""

    def ask(self, program: Program) -> Question | None:
        """How much of the axis goes to this level."""
        state = tensorir(program)
        place = self._rest(state)
        if place is None:
            return None
        loop, extent = place
        level, axis = self.pending[0]
        factors = divisors(extent, MAX_FACTOR)
        if self.powers:
            factors = [f for f in factors if f & (f - 1) == 0]
        if len(factors) < 2 or (
            factors[1] != extent and not state.is_legal(Split(loop, factors[1]))
        ):
            return None
        factors = factors[:MAX_OPTIONS]
        if level < len(self.layout) - 1 and extent > factors[-1]:
            factors = [*factors[: MAX_OPTIONS - 1], extent]
        name = self.axes[axis].name
        return Question(
            f"{self.block}.{'register' if self.layout == 'SSRS' else 'tile'}.{name}.{level}",
            DecisionKind.TILE,
            f"{self.block}: factor of {name} (of {extent}) at level {level} of {self.layout}",
            numbers(factors),
            self._default(state, factors, extent),
            NodeRef("loop", loop),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Split, move the new loop to its level, and go on."""
        state = tensorir(program)
        labels = list(self.labels)
        place = self._rest(state)
        if place is not None and value is not None and value > 1:
            loop, extent = place
            level, axis = self.pending[0]
            at = labels.index(self._rest_label(axis))
            if value == extent:
                labels[at] = (level, axis)
            else:
                state = state.apply(Split(loop, value))
                labels.insert(at + 1, (level, axis))
            state = in_order(state, loop - at, labels)
        following = replace(
            self, labels=tuple(labels), pending=self.pending[1:], goals=self.goals[1:]
        )
        if following.pending:
            return Next(state, (following,))
        block = find(state, self.block)
        own = own_loops(state.nest, block) if block is not None else ()
        if len(own) >= len(labels):
            state = in_order(state, own[-len(labels)], labels)
        if self.attach is None:
            return Next(state)
        name, level = self.attach
        outside = sum(label[0] < level for label in labels)
        return Next(state, (Attach(name, self.block, outside),))

    def _default(self, state: TensorIRProgram, factors: list[int], extent: int) -> int:
        """The static choice."""
        goal, level = self.goals[0], len(self.layout) - 1
        if goal == VECTORS:
            return closest_lanes(factors, self.lanes)
        if goal == REGISTER_LANES:
            rows = tuple(self._extent(state, (0, row)) for row in self.rows)
            return closest(factors, best_lanes(extent, self.lanes, rows)[1])
        if goal == REGISTER_ROWS:
            lane = self._extent(state, (level, len(self.axes) - 1))
            rows_so_far = math.prod(self._extent(state, (level, row)) for row in self.rows)
            vectors = vectors_of(lane, self.lanes)
            return factors.index(more_rows(vectors, rows_so_far, factors))
        return closest(factors, goal)

    def _extent(self, program: TensorIRProgram, label: Label) -> int:
        """Extent of the loop with that label, 1 if there is none."""
        block = find(program, self.block)
        if block is None or label not in self.labels:
            return 1
        own = own_loops(program.nest, block)
        return program.nest.loops[own[-len(self.labels) :][self.labels.index(label)]].extent

    def _rest_label(self, axis: int) -> Label:
        return self.layout.index(self.axes[axis].kind), axis

    def _rest(self, program: TensorIRProgram) -> tuple[int, int] | None:
        """Loop and extent of what is left of the axis; None if nothing is, or nothing is asked."""
        if not self.pending:
            return None
        block, rest = find(program, self.block), self._rest_label(self.pending[0][1])
        if block is None or rest not in self.labels:
            return None
        own = own_loops(program.nest, block)
        if len(own) < len(self.labels):
            return None
        loop = own[-len(self.labels)] + self.labels.index(rest)
        return loop, program.nest.loops[loop].extent


def in_order(program: TensorIRProgram, first: int, labels: list[Label]) -> TensorIRProgram:
    """The program with the loops from `first` on sorted by their labels, as far as that is legal.

    `labels` is sorted along.
    """
    for end in range(1, len(labels)):
        at = end
        while at > 0 and labels[at] < labels[at - 1]:
            swapped = attempt(program, Reorder(first + at - 1))
            if swapped is None:
                return program
            program = swapped
            labels[at - 1], labels[at] = labels[at], labels[at - 1]
            at -= 1
    return program


def begin_tiling(
    program: TensorIRProgram,
    name: str,
    layout: str,
    *,
    lanes: int,
    powers: bool = False,
    attach: tuple[str, int] | None = None,
    lane_axis: int | None = None,
) -> Tile | None:
    """The first question about the tiles of block `name`; None if its own loops cannot be tiled.

    `lanes` is how many elements of the written type fill a vector register, `lane_axis` the number
    of the own loop that is innermost in every tile, the last spatial one by default.
    """
    block = find(program, name)
    if block is None or not program.facts.once[block.index]:
        return None
    view, facts = program.facts.views[block.index], program.facts
    own = own_loops(program.nest, block)
    if view.ordered or not facts.flags[block.index][0] or not own:
        return None
    axes: list[Axis] = []
    for loop in own:
        var = program.nest.loops[loop].var
        reduced = reduces(program, block, loop)
        if reduced and var in view.spatial_vars:
            return None
        base = program.nest.loops[loop].node.loop_var.name
        taken = [axis.name for axis in axes]
        axes.append(Axis(base if base not in taken else f"{base}{loop}", "R" if reduced else "S"))
    spatial = [number for number, axis in enumerate(axes) if axis.kind == "S"]
    if not spatial or any(axis.kind not in layout for axis in axes):
        return None
    lane = spatial[-1] if lane_axis is None else lane_axis
    order = [number for number in range(len(axes)) if number != lane] + [lane]
    rows = [order.index(number) for number in _rows(program, block, lane)]
    labels = [(layout.index(axis.kind), order.index(n)) for n, axis in enumerate(axes)]
    axes = [axes[number] for number in order]
    pending = [
        (level, number)
        for level in reversed(range(len(layout)))
        for number in reversed(range(len(axes)))
        if axes[number].kind == layout[level] and layout.index(layout[level]) < level
    ]
    if layout == "SSRS":
        pending = [(level, n) for level, n in pending if n == len(axes) - 1 or n in rows]
    goal = _register_goal if layout == "SSRS" else _goal
    goals = tuple(goal(layout, axes, rows, level, number) for level, number in pending)
    return Tile(
        block=name,
        layout=layout,
        axes=tuple(axes),
        labels=tuple(labels),
        pending=tuple(pending),
        goals=goals,
        lanes=lanes,
        rows=tuple(rows),
        powers=powers,
        attach=attach,
    )


def _rows(program: TensorIRProgram, block: Block, lane: int) -> list[int]:
    """Numbers of the own loops that may become rows of a tile in registers, the innermost first."""
    axes = spatial_axes(program, block)
    found = [axis for axis in axes if axis.number == lane]
    return [axis.number for axis in row_axes(block, axes, found[0])] if found else []


def _register_goal(layout: str, axes: list[Axis], rows: list[int], level: int, number: int) -> int:
    """The static choice where the innermost tile stays in registers for the whole sum.

    Between it and the outermost loops stand all rows, so that what is loaded along the lanes stays
    in the first caches.
    """
    lane = number == len(axes) - 1
    if level == len(layout) - 1:
        return REGISTER_LANES if lane else REGISTER_ROWS if number in rows else 1
    return EVERYTHING if number in rows[:1] else 1


def _goal(layout: str, axes: list[Axis], rows: list[int], level: int, number: int) -> int:
    """The static choice: two vectors by four rows in registers, eight terms of the sum, then blocks
    that fit into the first caches."""
    spatial = [i for i, axis in enumerate(axes) if axis.kind == "S"]
    from_last = len(spatial) - 1 - spatial.index(number) if axes[number].kind == "S" else 0
    if axes[number].kind == "R":
        return 8 if number == max(i for i, a in enumerate(axes) if a.kind == "R") else 1
    if level == len(layout) - 1:
        return (VECTORS, 4, 1, 1)[min(from_last, 3)]
    if level == layout.index("S", 1):
        return (1, 4, 1, 1)[min(from_last, 3)]
    return 2 if from_last < 2 else 1
