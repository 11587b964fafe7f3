"""`Tile`: perfect tiles, asked factor by factor, innermost first; the product is right by construction.

A layout such as "SSRSRS" names the levels of the tiled nest, outermost first: S for every spatial
loop of the block, R for every loop it reduces over (Zheng et al., "Ansor", OSDI 2020, section 4.1).
What is left of each loop is asked for its factor at each of its levels but the first, which takes
the rest. Each answer splits the loop and moves the new one into its place at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

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
from tirgym.harness.decisions.walk import MAX_OPTIONS, Next, Question
from tirgym.harness.program import Program
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.reorder import Reorder
from tirgym.harness.transforms.reverse_compute_at import ReverseComputeAt
from tirgym.harness.transforms.split import Split

__all__ = ["Attach", "Tile", "begin_tiling"]

MAX_FACTOR = 64
"""Largest factor that is offered."""

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
    """about the static choice of the factor for each of `pending`; 0: whole vectors"""
    lanes: int
    """elements of a vector register"""
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
            factors[1] != extent and state.why_illegal(Split(loop, factors[1])) is not None
        ):
            return None
        factors = factors[:MAX_OPTIONS]
        name = self.axes[axis].name
        return Question(
            f"{self.block}.tile.{name}.{level}",
            DecisionKind.TILE,
            f"{self.block}: factor of {name} (of {extent}) at level {level} of {self.layout}",
            numbers(factors),
            closest(factors, self.goals[0])
            if self.goals[0]
            else closest_lanes(factors, self.lanes),
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
        if self.attach is None:
            return Next(state)
        name, level = self.attach
        outside = sum(label[0] < level for label in labels)
        return Next(state, (Attach(name, self.block, outside),))

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
) -> Tile | None:
    """The first question about the tiles of block `name`; None if its own loops cannot be tiled.

    `lanes` is how many elements of the written type fill a vector register.
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
    if not any(axis.kind == "S" for axis in axes):
        return None
    labels = [(layout.index(axis.kind), number) for number, axis in enumerate(axes)]
    pending = [
        (level, number)
        for level in reversed(range(len(layout)))
        for number in reversed(range(len(axes)))
        if axes[number].kind == layout[level] and layout.index(layout[level]) < level
    ]
    goals = tuple(_goal(layout, axes, level, number) for level, number in pending)
    return Tile(
        name, layout, tuple(axes), tuple(labels), tuple(pending), goals, lanes, powers, attach
    )


def _goal(layout: str, axes: list[Axis], level: int, number: int) -> int:
    """The static choice: two vectors by four rows in registers, eight terms of the sum, then blocks
    that fit into the first caches."""
    spatial = [i for i, axis in enumerate(axes) if axis.kind == "S"]
    from_last = len(spatial) - 1 - spatial.index(number) if axes[number].kind == "S" else 0
    if axes[number].kind == "R":
        return 8 if number == len(axes) - 1 else 1
    if level == len(layout) - 1:
        return (0, 4, 1, 1)[min(from_last, 3)]
    if level == layout.index("S", 1):
        return (1, 4, 1, 1)[min(from_last, 3)]
    return 2 if from_last < 2 else 1
