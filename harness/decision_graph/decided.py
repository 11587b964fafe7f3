"""`DecidedWays`: the states that a search's programs went through, question by question.

A search that decides (`Search.decided`) records the answers that made each program. Asking the
design space the same questions again gives the states between, about 1 ms an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tirgym.errors import UnknownNameError
from tirgym.harness.decision_graph.replayed import KeyedStates
from tirgym.harness.decisions import Walk, design_space
from tirgym.harness.run_record import Choice, chosen

__all__ = ["Answers", "Decided", "DecidedWays"]

Answers = tuple[tuple[str, int], ...]
"""Key and value of each answer, in order."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One answer on a way."""

    source: tuple[str, str]
    """IR key and open question before it"""
    target: tuple[str, str]
    before: tuple[str, ...]
    """transforms before it"""
    transforms: tuple[str, ...]
    """what it applied"""
    choice: Choice


class DecidedWays:
    """Ways through the design space of one workload and target."""

    def __init__(self, keyed: KeyedStates, answers: Iterable[Answers]) -> None:
        self.ways: dict[Answers, tuple[Decided, ...]] = {}
        """by answers; those that the space does not ask for any more are left out"""
        self._keyed = keyed
        asked = sorted({one for one in answers if one})
        root = _root(keyed) if asked else None
        if root is not None:
            self._follow(root, asked)

    def _follow(self, root: Walk, asked: list[Answers]) -> None:
        """In sorted order neighbours share their beginning, so that no answer is given twice."""
        walks, way = [root], list[Decided]()
        given: Answers = ()
        for answers in asked:
            shared = 0
            while shared < min(len(given), len(answers)) and given[shared] == answers[shared]:
                shared += 1
            del walks[shared + 1 :], way[shared:]
            for key, value in answers[shared:]:
                step = self._step(walks[-1], key, value)
                if step is None:
                    break
                walks.append(step[0])
                way.append(step[1])
            given = answers[: len(way)]
            if len(way) == len(answers) and walks[-1].done:
                self.ways[answers] = tuple(way)

    def _step(self, walk: Walk, key: str, value: int) -> tuple[Walk, Decided] | None:
        """The walk after the answer, None if there is no such question or option."""
        question = walk.question
        if question is None or question.key != key:
            return None
        values = [option.value for option in question.options]
        if value not in values:
            return None
        option = values.index(value)
        after = walk.answer(option)
        self._keyed.note(after.program)
        texts = tuple(map(str, after.program.steps))
        number = len(walk.program.steps)
        return after, Decided(
            source=(walk.program.ir_key, question.key),
            target=(after.program.ir_key, after.question.key if after.question else ""),
            before=texts[:number],
            transforms=texts[number:],
            choice=chosen(walk, option, after),
        )


def _root(keyed: KeyedStates) -> Walk | None:
    """The first question about the unscheduled program; None if the backend has no design space."""
    try:
        root = design_space(keyed.start)
    except UnknownNameError:
        return None
    keyed.replay([tuple(map(str, root.program.steps))])
    return root
