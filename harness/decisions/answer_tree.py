"""`AnswerTree`: the stored walks of one workload, to see what can still be reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tirgym.errors import TargetMismatchError
from tirgym.harness.decisions.walk import Walk
from tirgym.harness.store_records import StoredWalk

__all__ = ["AnswerTree", "Fork", "Place"]


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """A question on the way; equal to itself alone."""

    key: str
    after: dict[int, Fork | str] = field(default_factory=dict)
    """by value of the option: the next question, or the IR key of the finished program"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk stands in a tree."""

    tree: AnswerTree
    node: Fork | str
    options: tuple[int, ...]
    """those of the open question behind which a stored program lies; () when all is decided"""

    def follow(self, value: int, walk: Walk) -> Place:
        """The place of `walk`, which took the option of `value`, one of `options`.

        Raises TargetMismatchError if that is not what the tree holds.
        """
        assert isinstance(self.node, Fork)  # only forks have options
        return self.tree.place(self.node.after[value], walk)


class AnswerTree:
    """Walks with a settled verdict, by their answers; several may lead to one program.

    It is held against the questions that the compiler asks now, at every place that is asked for:
    raises TargetMismatchError, with `name` and the remedy, where the walks cannot be walked any more,
    so that a stored number is never taken for another program's.
    """

    def __init__(self, walks: Iterable[StoredWalk], name: str) -> None:
        self._name = name
        self.size = 0
        roots: dict[int, Fork | str] = {}
        for walk in walks:
            if walk.settled:
                self._grow(roots, walk)
                self.size += 1
        self._root = roots.get(0)

    def _grow(self, roots: dict[int, Fork | str], walk: StoredWalk) -> None:
        """Put `walk` into the tree, whose root stands under 0."""
        at, value = roots, 0
        for key, following in walk.path:
            node = at.setdefault(value, Fork(key))
            if not isinstance(node, Fork) or node.key != key:
                raise self._changed(f"walks disagree on what is asked at {key}")
            at, value = node.after, following
        if at.setdefault(value, walk.ir_key) != walk.ir_key:
            raise self._changed("equal answers lead to different programs")

    def begin(self, walk: Walk) -> Place:
        """The place of an unanswered walk; the tree must not be empty."""
        assert self._root is not None  # callers ask `size` first
        return self.place(self._root, walk)

    def place(self, node: Fork | str, walk: Walk) -> Place:
        """`node` held against what `walk` asks; raises TargetMismatchError."""
        question = walk.question
        if question is None:
            if node != walk.program.ir_key:
                raise self._changed("the answers lead to another program")
            return Place(self, node, ())
        if not isinstance(node, Fork) or node.key != question.key:
            raise self._changed(f"{question.key} was not asked at this place")
        after = node.after
        options = tuple(i for i, option in enumerate(question.options) if option.value in after)
        if len(options) != len(after):
            raise self._changed(f"{question.key} had other options")
        return Place(self, node, options)

    def _changed(self, what: str) -> TargetMismatchError:
        return TargetMismatchError(
            f"{self._name} was recorded with other decision points ({what}): record it again with "
            "`tirgym store record`, or use the tirgym version that recorded it"
        )
