"""`Pad`: round a loop of a contraction up, so that whole vectors or good tiles divide it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tirgym.harness.decisions.contractions import (
    SpatialAxis,
    along,
    operands,
    row_axes,
    spatial_axes,
)
from tirgym.harness.decisions.nests import find, tensorir
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.register_tile import best_lanes
from tirgym.harness.decisions.stages import Inline, consumers_of
from tirgym.harness.decisions.walk import Next, Question
from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import Block
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.pad_axis import PadAxis

__all__ = ["Pad", "padded"]

ROWS = (4, 6, 8, 10, 12)
"""Multiples that rows are padded to."""
VECTORS = (1, 2, 3)
"""The same along the lanes, in vectors."""
MAX_GROWTH = 1.34
"""Largest growth of the work that is offered."""
COPY_CYCLES = 0.25
"""Of one element of a padded operand."""
GAIN = 1.1
"""Gain from which rows are padded."""


def padded(extent: int, multiple: int) -> int:
    """`extent`, rounded up."""
    return -(-extent // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Pad:
    """Pad one spatial loop of a contraction with zeros, up to a multiple.

    Along the lanes it is asked of every extent that is no multiple of the vector length, of the
    other loops only where their divisors make poor tiles. The static choice takes the least time
    for arithmetic and copies together.
    """

    block: str
    axis: int
    """number of the loop among the block's own"""
    lane_axis: int
    lanes: int

    def ask(self, program: Program) -> Question | None:
        """To a multiple of what."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None:
            return None
        axes = spatial_axes(state, block)
        axis = next((a for a in axes if a.number == self.axis), None)
        if axis is None or not any(a.number == self.lane_axis for a in axes):
            return None
        costs = self._costs(state, block, axes, axis)
        best = min(costs, key=costs.__getitem__)
        whole = axis.number != self.lane_axis or axis.extent % self.lanes == 0
        if len(costs) < 2 or (whole and best == 1):
            return None
        options = [Option(f"keep {axis.extent}", 1)]
        options += [Option(f"{padded(axis.extent, m)}", m) for m in costs if m > 1]
        return Question(
            f"{self.block}.pad.{axis.name}",
            DecisionKind.PAD,
            f"{self.block}: pad {axis.name} of {axis.extent} with zeros?",
            tuple(options),
            list(costs).index(best),
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Pad, and read the result where it is needed instead of copying it out, if that is free."""
        state = tensorir(program)
        block = find(state, self.block)
        if value is None or value < 2 or block is None:
            return Next(state)
        axis = next(a for a in spatial_axes(state, block) if a.number == self.axis)
        state = state.apply(PadAxis(block.index, axis.iterator, value))
        block = find(state, self.block)
        assert block is not None  # padding keeps the names of blocks
        crops = consumers_of(state, block)
        return Next(state, tuple(Inline(crop.facts.name) for crop in crops))

    def _costs(
        self, state: TensorIRProgram, block: Block, axes: list[SpatialAxis], axis: SpatialAxis
    ) -> dict[int, float]:
        """About the cycles for each multiple that is possible and makes a difference; 1 first."""
        along_lanes = axis.number == self.lane_axis
        multiples = [n * self.lanes for n in VECTORS] if along_lanes else list(ROWS)
        costs, extents = {1: self._cycles(state, block, axes, axis.extent)}, {axis.extent}
        for multiple in multiples:
            extent = padded(axis.extent, multiple)
            if extent in extents or extent > MAX_GROWTH * axis.extent:
                continue
            if state.is_legal(PadAxis(block.index, axis.iterator, multiple)):
                extents.add(extent)
                cycles = self._cycles(state, block, axes, extent)
                if not along_lanes:
                    cycles *= GAIN
                costs[multiple] = cycles + _copies(block, axis)
        return costs

    def _cycles(
        self, state: TensorIRProgram, block: Block, axes: list[SpatialAxis], extent: int
    ) -> float:
        """Cycles for the arithmetic with `extent` iterations of the loop."""
        axes = [a._replace(extent=extent) if a.number == self.axis else a for a in axes]
        lane = next(a for a in axes if a.number == self.lane_axis)
        rows = tuple(a.extent for a in row_axes(block, axes, lane))
        work = math.prod(block.facts.iter_extents) / next(
            a.extent for a in spatial_axes(state, block) if a.number == self.axis
        )
        return work * extent * best_lanes(lane.extent, self.lanes, rows)[0]


def _copies(block: Block, axis: SpatialAxis) -> float:
    """Cycles to copy the operands that the loop indexes."""
    moved = [read.buffer for _, read in operands(block) if not along(read, axis.handle).free]
    return sum(math.prod(buffer.shape) for buffer in moved) * COPY_CYCLES
