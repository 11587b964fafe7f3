"""`Draft`: a program that macros try transforms on; `legal_macros`: which macros are legal."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, cast

from tirgym.errors import IllegalTransformError
from tirgym.harness.macros.base import Macro
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tirgym.harness.tensorir.program import TensorIRProgram

__all__ = ["Draft", "legal_macros", "play"]

T = TypeVar("T")


class Draft:
    """A program, and what was asked of it and tried on it so far; macros of one mask share it."""

    __slots__ = ("_after", "_known", "_legal", "program")

    def __init__(self, program: TensorIRProgram) -> None:
        self.program = program
        self._after: dict[Transform, Draft | IllegalTransformError] = {}
        self._legal: dict[Transform, int] = {}
        self._known: dict[object, object] = {}

    def then(self, *transforms: Transform) -> Draft:
        """The draft after `transforms`; raises IllegalTransformError at the first that is illegal."""
        draft = self
        for transform in transforms:
            after = draft._after.get(transform)
            if after is None:
                try:
                    after = Draft(draft.program.apply(transform))
                except IllegalTransformError as error:
                    after = error
                draft._after[transform] = after
            if isinstance(after, IllegalTransformError):
                raise after
            draft = after
        return draft

    def legal(self, prototype: Transform) -> int:
        """Nodes on which a transform like `prototype` is legal, as bits; its own is not asked."""
        found = self._legal.get(prototype)
        if found is None:
            from tirgym.harness.tensorir.legality import legal_nodes

            found = self._legal[prototype] = legal_nodes(self.program, prototype)
        return found

    def known(self, key: object, find: Callable[[], T]) -> T:
        """What `find` answers about this program, found once for each `key`."""
        if key not in self._known:
            self._known[key] = find()
        return cast(T, self._known[key])


def play(macro: Macro, program: TensorIRProgram) -> TensorIRProgram:
    """`program` after the transforms of `macro`; raises IllegalTransformError that names the step."""
    try:
        made = macro.play(Draft(program)).program
    except IllegalTransformError as error:
        if error.transform == str(macro):
            raise
        reason = f"its step {error.transform} is refused: {error.reason}"
        raise IllegalTransformError(str(macro), error.rule, reason, error.location) from None
    if len(made.steps) == len(program.steps):
        raise macro.refusal("it would change nothing")
    return made


@lru_cache(maxsize=16)
def _by_node(vocabulary: Vocabulary) -> tuple[tuple[str, int, tuple[tuple[int, Macro], ...]], ...]:
    """The macros of `vocabulary` with their actions, by kind and number of their node."""
    found: dict[tuple[str, int], list[tuple[int, Macro]]] = {}
    for kind, (low, high) in vocabulary.spans.items():
        if issubclass(kind, Macro):
            for action in range(low, high):
                macro = vocabulary[action]
                found.setdefault(tuple(macro.node), []).append((action, macro))
    return tuple((kind, index, tuple(macros)) for (kind, index), macros in found.items())


def legal_macros(program: TensorIRProgram, vocabulary: Vocabulary) -> list[int]:
    """Actions of the macros that are legal; those whose verdict is open are played."""
    draft = Draft(program)
    number = {"block": len(program.nest.blocks), "loop": len(program.nest.loops), "program": 1}
    found: list[int] = []
    for kind, index, macros in _by_node(vocabulary):
        if index >= number[kind]:
            continue
        for action, macro in macros:
            verdict = macro.verdict(draft)
            if verdict or (verdict is None and _plays(macro, draft)):
                found.append(action)
    return found


def _plays(macro: Macro, draft: Draft) -> bool:
    try:
        after = macro.play(draft)
    except IllegalTransformError:
        return False
    return after is not draft
