"""`TritonTransform`: one change of a recipe; how transforms name a pass of a pipeline."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tirgym.harness.transforms.base import NodeRef, Transform
from tirgym.harness.triton.pass_rules import LEVELS, MAX_PASSES
from tirgym.harness.triton.pipeline import PassCall
from tirgym.harness.triton.recipe import Recipe

__all__ = ["PassTransform", "Refusal", "TritonTransform"]


class Refusal(Exception):
    """Why a transform is illegal; a program makes an IllegalTransformError of it. Light, since masks
    meet it a thousand times."""

    def __init__(self, rule: str, reason: str, location: str = "") -> None:
        self.rule, self.reason, self.location = rule, reason, location
        super().__init__(rule, reason, location)


class TritonTransform(Transform):
    """Base of all transforms of Triton programs.

    Legal is what changes something, leaves mandatory passes and the tail alone, and stays within the
    limits that are known without compiling. Whether the compiler can make code of it shows later.
    """

    dialect: ClassVar[str] = "triton"

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Raises a Refusal unless it is legal; what masks call, a thousand times for a state."""

    @abstractmethod
    def applied_to(self, recipe: Recipe) -> Recipe:
        """The recipe after the change; raises Refusal."""

    @property
    def node(self) -> NodeRef:
        """The whole program."""
        return NodeRef("program", 0)


class PassTransform(TritonTransform):
    """Base of edits of a pipeline. A pass is named by its level, its name and, since some run more
    than once, which of its runs is meant, counted from 0."""

    level: str

    @abstractmethod
    def edited(self, recipe: Recipe) -> tuple[PassCall, ...]:
        """The passes of the level after the change, which `check` allows."""

    def applied_to(self, recipe: Recipe) -> Recipe:
        """As `TritonTransform.applied_to`."""
        self.check(recipe)
        return recipe.with_calls(self.level, self.edited(recipe))

    def require_level(self) -> None:
        """Raise unless there is such a level."""
        if self.level not in LEVELS:
            raise Refusal("level", f"passes run at {' and '.join(LEVELS)}")

    def place(self, recipe: Recipe, name: str, nth: int) -> int:
        """Where the pass stands; raises for one that is not there or may not be touched."""
        self.require_level()
        found = recipe.place(self.level, name, nth)
        if isinstance(found, int):
            return found
        raise Refusal(*found, self.level)

    def require_room(self, recipe: Recipe) -> None:
        """Raise unless one more pass fits."""
        if len(recipe.names[self.level]) >= MAX_PASSES[self.level]:
            limit = f"a pipeline has at most {MAX_PASSES[self.level]} passes"
            raise Refusal("length", limit, self.level)
