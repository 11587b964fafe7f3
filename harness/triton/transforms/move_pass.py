"""`MovePass`: run a pass earlier or later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pass_rules import LEVELS, addressed
from tirgym.harness.triton.pipeline import PassCall
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.transforms.base import PassTransform, Refusal

__all__ = ["DISTANCES", "MovePass"]

DISTANCES = (-4, -1, 1, 4)
"""Places by which the action table moves a pass."""


@dataclass(frozen=True, slots=True)
class MovePass(PassTransform):
    """Move run `nth` of a pass by so many places; below 0 is earlier.

        …, ttir.combine(), common.cse(), …    →    …, common.cse(), ttir.combine(), …

    Refused for a run that is not there, for mandatory passes, before the conversion to TTGIR, into the
    tail or past an end, and where the neighbours are the same pass, so that nothing would change.
    """

    level: str
    pass_name: str
    nth: int
    by: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[MovePass]:
        """Every run of every pass, by one place and by four."""
        for level in LEVELS:
            for name, nth in addressed(level):
                for by in DISTANCES:
                    yield cls(level, name, nth, by)

    def check(self, recipe: Recipe) -> None:
        """See the class."""
        place = self.place(recipe, self.pass_name, self.nth)
        first = 1 if self.level == "ttgir" else 0
        last = recipe.tails[self.level] - 1
        there = place + self.by
        if not first <= there <= last:
            raise Refusal("place", f"it stands at {place} of {first} to {last}", self.level)
        calls = recipe.calls(self.level)
        passed = calls[min(place, there) : max(place, there) + 1]
        if passed.count(passed[0]) == len(passed):
            raise Refusal("nothing", "the pipeline would stay as it is", self.level)

    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """See the class."""
        place, calls = self.place(recipe, self.pass_name, self.nth), recipe.calls(self.level)
        rest = [*calls[:place], *calls[place + 1 :]]
        rest.insert(place + self.by, calls[place])
        return tuple(rest)
