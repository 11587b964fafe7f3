"""`SetPassArgument`: another argument for a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.triton.pass_rules import ARGUMENTS, addressed
from tirgym.harness.triton.pipeline import PassCall
from tirgym.harness.triton.recipe import Recipe
from tirgym.harness.triton.transforms.base import PassTransform, Refusal

__all__ = ["SetPassArgument"]


@dataclass(frozen=True, slots=True)
class SetPassArgument(PassTransform):
    """Give run `nth` of a pass another value for one argument, as `ARGUMENTS` has them.

        ttgpuir.pipeline(3, False)    →    ttgpuir.pipeline(5, False)

    Refused for a run that is not there, for mandatory passes and the tail, for a value that is not
    offered, and for the one that it has.
    """

    level: str
    pass_name: str
    nth: int
    argument: int
    value: int

    @classmethod
    def slots(cls, limits: SlotLimits) -> Iterator[SetPassArgument]:
        """Every value of every argument, for every run of the pass."""
        for (name, argument), values in ARGUMENTS.items():
            for found, nth in addressed("ttgir"):
                if found == name:
                    for value in values:
                        yield cls("ttgir", name, nth, argument, value)

    def check(self, recipe: Recipe) -> None:
        """See the class."""
        place = self.place(recipe, self.pass_name, self.nth)
        call = recipe.calls(self.level)[place]
        offered = ARGUMENTS.get((self.pass_name, self.argument), ())
        if self.value not in offered or self.argument >= len(call.arguments):
            accepted = f"one of {', '.join(map(str, offered))}" if offered else "no argument there"
            raise Refusal("argument", f"{call} takes {accepted}", self.level)
        if call.arguments[self.argument] == self.value:
            raise Refusal("nothing", f"it is {call} already", self.level)

    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """See the class."""
        place, calls = self.place(recipe, self.pass_name, self.nth), recipe.calls(self.level)
        arguments = list(calls[place].arguments)
        is_switch = isinstance(arguments[self.argument], bool)
        arguments[self.argument] = bool(self.value) if is_switch else self.value
        changed = replace(calls[place], arguments=tuple(arguments))
        return (*calls[:place], changed, *calls[place + 1 :])
