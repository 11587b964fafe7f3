"""`DecomposeAll`: take the initialisation out of every reduction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.macros.base import Macro
from tirgym.harness.tensorir.facts import bits
from tirgym.harness.transforms.base import NodeRef, SlotLimits
from tirgym.harness.transforms.decompose_reduction import DecomposeReduction

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["DecomposeAll"]


@dataclass(frozen=True, slots=True)
class DecomposeAll(Macro):
    """Split each reduction into initialisation and update, at the outermost loop it reduces over.

        for i, k in grid(16, 32):              for i in range(16):
            with init():                           C[i] = 0.0
                C[i] = 0.0                 →       for k in range(32):
            C[i] += A[i, k]                            C[i] += A[i, k]

    Refused where `DecomposeReduction` is refused for every reduction.
    """

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[DecomposeAll]:
        """One."""
        yield cls()

    @property
    def node(self) -> NodeRef:
        """The whole program."""
        return NodeRef("program", 0)

    def play(self, draft: Draft) -> Draft:
        """DecomposeReduction until no reduction is left for it."""
        following = _next(draft)
        if following is None:
            raise self.refusal("no reduction can be decomposed")
        while following is not None:
            draft = draft.then(following)
            following = _next(draft)
        return draft

    def verdict(self, draft: Draft) -> bool:
        """Whether there is a first reduction: every step is legal when it is chosen."""
        return _next(draft) is not None


def _next(draft: Draft) -> DecomposeReduction | None:
    facts = draft.program.facts
    outermost = 0
    for block in facts.blocks:
        reduced = facts.reduced[block.index]
        if block.facts.has_init and reduced:
            loop = (reduced & -reduced).bit_length() - 1
            if facts.first_init[loop] == block.index:
                outermost |= 1 << loop
    possible = bits(draft.legal(DecomposeReduction(0)) & outermost) if outermost else []
    return DecomposeReduction(possible[0]) if possible else None
