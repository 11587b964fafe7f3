"""`RepeatPass`: run a pass once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pass_rules import LEVELS, addressed
from tirgym.harness.triton.pipeline import PassCall
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.transforms.base import PassTransform

__all__ = ["RepeatPass"]


@dataclass(frozen=True, slots=True)
class RepeatPass(PassTransform):
    """Run a pass again right behind its run `nth`, with the same arguments.

        …, ttir.combine(), common.cse(), …    →    …, ttir.combine(), ttir.combine(), common.cse(), …

    Refused for a run that is not there, for mandatory passes, for the tail, and where the pipeline is
    as long as it may be.
    """

    level: str
    pass_name: str
    nth: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[RepeatPass]:
        """Every run of every pass."""
        for level in LEVELS:
            for name, nth in addressed(level):
                yield cls(level, name, nth)

    def check(self, recipe: Recipe) -> None:
        """See the class."""
        self.place(recipe, self.pass_name, self.nth)
        self.require_room(recipe)

    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """See the class."""
        place, calls = self.place(recipe, self.pass_name, self.nth), recipe.calls(self.level)
        return (*calls[: place + 1], *calls[place:])
