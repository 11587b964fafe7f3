"""`UnrollBudget`: unroll every nest as far as a code size allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.decisions.marks import UNROLL_STEPS, unrolled_size
from tirgym.harness.macros.base import Macro
from tirgym.harness.tensorir.facts import bits
from tirgym.harness.transforms.base import NodeRef, SlotLimits
from tirgym.harness.transforms.unroll_pragma import UnrollPragma

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["UnrollBudget"]

BUDGETS = (600, 3_000, 12_000)
"""Expression nodes of one unrolled nest."""


@dataclass(frozen=True, slots=True)
class UnrollBudget(Macro):
    """Put an unroll pragma on each nest: the largest limit that unrolls to at most `budget` nodes.

        for i, j in grid(128, 4):              for i in range(128, annotations={
            B[i, j] = A[i, j] * 2.0                "pragma_auto_unroll_max_step": 64,
                                           →       "pragma_unroll_explicit": 1}):
                                                   for j in range(4):
                                                       B[i, j] = A[i, j] * 2.0

    Limits are 16, 64 and 512 iterations; nests that are too large for the least stay as they are.
    Refused where `UnrollPragma` is refused, or too much, on every outermost loop.
    """

    budget: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[UnrollBudget]:
        """Three budgets."""
        for budget in BUDGETS:
            yield cls(budget)

    @property
    def node(self) -> NodeRef:
        """The whole program."""
        return NodeRef("program", 0)

    def play(self, draft: Draft) -> Draft:
        """UnrollPragma on each outermost loop that takes one."""
        steps = self._steps(draft)
        if not steps:
            raise self.refusal("no outermost loop takes a pragma within the budget")
        return draft.then(*steps)

    def verdict(self, draft: Draft) -> bool:
        """Pragmas on different nests do not concern each other."""
        return bool(self._steps(draft))

    def _steps(self, draft: Draft) -> list[UnrollPragma]:
        program = draft.program
        found = []
        for loop in bits(draft.legal(UnrollPragma(0, UNROLL_STEPS[-1]))):
            sizes = draft.known(("unrolled", loop), lambda: _sizes(program, loop))  # noqa: B023
            fitting = [step for step, size in sizes.items() if size <= self.budget]
            if fitting:
                found.append(UnrollPragma(loop, fitting[-1]))
        return found


def _sizes(program: TensorIRProgram, loop: int) -> dict[int, int]:
    """Expression nodes of a nest by how far it is unrolled."""
    blocks = program.nest.loops[loop].blocks
    return {step: unrolled_size(program, step, blocks) for step in UNROLL_STEPS if step}
