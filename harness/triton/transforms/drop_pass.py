"""`DropPass`: leave a pass out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pass_rules import LEVELS, addressed
from tirgym.harness.triton.pipeline import PassCall
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.transforms.base import PassTransform

__all__ = ["DropPass"]


@dataclass(frozen=True, slots=True)
class DropPass(PassTransform):
    """Leave out run `nth` of a pass.

        …, common.cse(), ttgpuir.prefetch(), common.cse(), …  →  …, common.cse(), common.cse(), …

    Refused for a run that is not there, for mandatory passes and for the tail.
    """

    level: str
    pass_name: str
    nth: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[DropPass]:
        """Every run of every pass."""
        for level in LEVELS:
            for name, nth in addressed(level):
                yield cls(level, name, nth)

    def check(self, recipe: Recipe) -> None:
        """See the class."""
        self.place(recipe, self.pass_name, self.nth)

    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """See the class."""
        place, calls = self.place(recipe, self.pass_name, self.nth), recipe.calls(self.level)
        return (*calls[:place], *calls[place + 1 :])
