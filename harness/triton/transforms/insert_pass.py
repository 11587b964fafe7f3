"""`InsertPass`: run one more pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pass_rules import FIRST, LEVELS, anchors, insertable
from tirgym.harness.triton.pipeline import PassCall, pass_registry
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.transforms.base import PassTransform, Refusal

__all__ = ["InsertPass"]


@dataclass(frozen=True, slots=True)
class InsertPass(PassTransform):
    """Run one more pass before the first run of another one; `before=""` is the end.

        …, ttir.combine(), common.cse(), …    →    …, ttir.combine(), common.licm(), common.cse(), …

    Refused for passes that are none of `INSERTABLE` or belong to another vendor, before the conversion
    to TTGIR, within the tail, and where the pipeline is as long as it may be.
    """

    level: str
    pass_name: str
    before: str

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[InsertPass]:
        """Every pass that may be inserted, before every pass of the stock pipelines."""
        for level in LEVELS:
            for name in insertable(level):
                for before in anchors(level):
                    yield cls(level, name, before)

    def check(self, recipe: Recipe) -> None:
        """See the class."""
        self.require_level()
        offered = insertable(self.level)
        if self.pass_name not in offered:
            raise Refusal("pass", f"one of {', '.join(offered)} may be inserted", self.level)
        if self.pass_name not in pass_registry(recipe.gpu.vendor):
            reason = f"{self.pass_name} is no pass for {recipe.gpu.arch}"
            raise Refusal("vendor", reason, self.level)
        self.require_room(recipe)
        if self.before == FIRST and self.level == "ttgir":
            raise Refusal("place", f"{FIRST} stays the first", self.level)
        if self.before and self._place(recipe) < 0:
            raise Refusal("place", f"{self.before} does not run before the tail", self.level)

    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """See the class."""
        place, calls = self._place(recipe), recipe.calls(self.level)
        return (*calls[:place], insertable(self.level)[self.pass_name], *calls[place:])

    def _place(self, recipe: Recipe) -> int:
        """Where it goes, -1 for nowhere."""
        if not self.before:
            return recipe.tails[self.level]
        return recipe.firsts[self.level].get(self.before, -1)
