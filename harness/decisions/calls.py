"""`Calls`: whether a block calls the C library for exp, tanh, … or computes them in vectors."""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.harness.decisions.nests import attempt, find, tensorir
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.decisions.walk import Next, Question
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import NodeRef
from tirgym.harness.transforms.vector_math import VectorMath

__all__ = ["Calls"]


@dataclass(frozen=True, slots=True)
class Calls:
    """Write the calls of a block as arithmetic. The static choice does, since vectors need it.

    Asked after inlining, so that a block which is inlined is decided about where it ends up.
    """

    block: str

    def ask(self, program: Program) -> Question | None:
        """Call or compute."""
        state = tensorir(program)
        block = find(state, self.block)
        if block is None or not state.is_legal(VectorMath(block.index)):
            return None
        return Question(
            f"{self.block}.calls",
            DecisionKind.CALLS,
            f"{self.block}: call the C library for each element, or compute the function in vectors?",
            (Option("call the C library", 0), Option("arithmetic in vectors", 1)),
            1,
            NodeRef("block", block.index),
            self.block,
        )

    def take(self, program: Program, value: int | None) -> Next:
        """Write the calls as arithmetic if so decided."""
        state = tensorir(program)
        block = find(state, self.block)
        if not value or block is None:
            return Next(state)
        return Next(attempt(state, VectorMath(block.index)) or state)
