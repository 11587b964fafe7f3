"""`Macro`: one action that is made of several transforms."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tirgym.errors import IllegalTransformError
from tirgym.harness.transforms.base import NodeRef, ScheduleTransform

if TYPE_CHECKING:
    from tvm.s_tir import Schedule

    from tirgym.harness.macros.draft import Draft
    from tirgym.harness.tensorir.handles import Handles
    from tirgym.harness.tensorir.nest import Block

__all__ = ["BlockMacro", "Macro"]


class Macro(ScheduleTransform):
    """Base of all macros: frozen dataclasses that expand to transforms of the program at hand.

    A macro is a function of IR and target, blind to names, so that the same macro on the same
    program is the same list of transforms everywhere. It is legal iff each of them is, one after
    the other, and there is at least one. Programs record the transforms, never the macro: traces
    replay without it.
    """

    @abstractmethod
    def play(self, draft: Draft) -> Draft:
        """The draft after every transform; raises IllegalTransformError where one is refused."""

    def verdict(self, draft: Draft) -> bool | None:
        """Whether the macro is legal, as far as that is certain without playing it.

        Held to `play` in both directions by property tests, as shortcuts are to the compiler.
        """
        return None

    def refusal(self, reason: str) -> IllegalTransformError:
        """The error that says why there is nothing to expand to."""
        place = f"{self.node.kind} {self.node.index}" if self.node.kind != "program" else ""
        return IllegalTransformError(str(self), "macro", reason, place)

    def apply_to(self, schedule: Schedule, at: Handles) -> None:
        """Not by one primitive: `Program.apply` plays macros, each transform under its own rules."""
        raise self.refusal("a macro is no primitive of the compiler; apply it to a program")


class BlockMacro(Macro):
    """A macro about one block."""

    block: int

    @property
    def node(self) -> NodeRef:
        """The block."""
        return NodeRef("block", self.block)

    def found(self, draft: Draft) -> Block:
        """The block; raises IllegalTransformError if there is none of that number."""
        blocks = draft.program.nest.blocks
        if not 0 <= self.block < len(blocks):
            raise self.refusal("the program has no such block")
        return blocks[self.block]
