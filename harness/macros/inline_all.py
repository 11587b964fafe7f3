"""`InlineAll`: compute every cheap intermediate where it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirgym.harness.decisions.nests import calls
from tirgym.harness.macros.base import Macro
from tirgym.harness.tensorir.facts import Facts, bits
from tirgym.harness.transforms.base import NodeRef, SlotLimits
from tirgym.harness.transforms.compute_inline import ComputeInline

if TYPE_CHECKING:
    from tirgym.harness.macros.draft import Draft

__all__ = ["InlineAll"]


@dataclass(frozen=True, slots=True)
class InlineAll(Macro):
    """Inline every block that may be inlined and costs nothing there, the first one first.

        for i in range(128):
            B[i] = A[i] * 2.0              for i in range(128):
        for i in range(128):          →        D[i] = max(A[i] * 2.0 + 1.0, 0.0)
            C[i] = B[i] + 1.0
        for i in range(128):
            D[i] = max(C[i], 0.0)

    A block that calls a function or has a guard costs nothing only where a single reader takes each
    element once (MetaSchedule's AutoInline). Refused where there is no such block.
    """

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[InlineAll]:
        """One."""
        yield cls()

    @property
    def node(self) -> NodeRef:
        """The whole program."""
        return NodeRef("program", 0)

    def play(self, draft: Draft) -> Draft:
        """ComputeInline until no block is left for it."""
        following = _next(draft)
        if following is None:
            raise self.refusal("no block can be inlined for nothing")
        while following is not None:
            draft = draft.then(following)
            following = _next(draft)
        return draft

    def verdict(self, draft: Draft) -> bool:
        """Whether there is a first block: every step is legal when it is chosen."""
        return _next(draft) is not None


def _next(draft: Draft) -> ComputeInline | None:
    facts = draft.program.facts
    legal = draft.legal(ComputeInline(0))
    found = next((i for i in bits(legal) if _is_cheap(facts, i)), None)
    return None if found is None else ComputeInline(found)


def _is_cheap(facts: Facts, block: int) -> bool:
    consumers = facts.consumers[block]
    if len(consumers) == 1 and facts.trips[consumers[0]] <= facts.views[block].domain:
        return True
    return not calls(facts.blocks[block].facts.node.body)
