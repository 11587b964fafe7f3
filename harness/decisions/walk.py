"""`Walk`: a way through the open choices of one program; immutable, so that forks cost nothing.

A walk holds the program as far as it is decided, and an agenda of tasks. A task asks at most one
question of the program at hand, and its answer becomes transforms and further tasks. Questions with
a single option are answered at once. The finished program consists of ordinary transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from tirgym.errors import InvalidValueError
from tirgym.harness.cost import CostModel
from tirgym.harness.decisions.agents import DecisionAgent
from tirgym.harness.decisions.point import (
    DecisionKind,
    DecisionPoint,
    Option,
    Recommendation,
)
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.transforms.base import NodeRef

__all__ = ["MAX_OPTIONS", "Answer", "Next", "Question", "Task", "Walk"]

MAX_OPTIONS = 32
"""Options of a question at most; spaces prune their candidates to it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A choice as the space sees it; `Walk.point` makes the full record of it."""

    key: str
    kind: DecisionKind
    text: str
    options: tuple[Option, ...]
    default: int
    node: NodeRef
    block: str = ""


class Next(NamedTuple):
    """What comes of an answer."""

    program: Program
    tasks: tuple[Task, ...] = ()
    """put in front of the agenda"""


class Task(Protocol):
    """One item of an agenda; an immutable value."""

    def __hash__(self) -> int:
        """Equal tasks do alike."""

    def ask(self, program: Program) -> Question | None:
        """The question, or None when there is nothing to decide. A pure function."""

    def take(self, program: Program, value: int | None) -> Next:
        """Carry out the answer with that value; None when nothing was asked. Always legal."""


class Answer(NamedTuple):
    """A question that was answered."""

    key: str
    kind: DecisionKind
    option: int
    value: int
    label: str


@dataclass(frozen=True)
class Walk:
    """A program and what is still to be decided about it."""

    program: Program
    agenda: tuple[Task, ...]
    question: Question | None
    """the open question; None when everything is decided"""
    answers: tuple[Answer, ...] = ()
    """those that had a choice, in order"""

    @classmethod
    def begin(cls, program: Program, tasks: Sequence[Task]) -> Walk:
        """The first question about `program`."""
        return _settle(program, tuple(tasks), ())

    @property
    def done(self) -> bool:
        """Whether everything is decided."""
        return self.question is None

    def answer(self, option: int) -> Walk:
        """The walk after taking option number `option`; raises InvalidValueError out of range."""
        question = self.question
        if question is None:
            raise InvalidValueError("option", option, "none: everything is decided")
        if not 0 <= option < len(question.options):
            accepted = f"0 to {len(question.options) - 1} for {question.key}"
            raise InvalidValueError("option", option, accepted)
        taken = question.options[option]
        answer = Answer(question.key, question.kind, option, taken.value, taken.label)
        program, tasks = _taken(self.agenda[0], self.program, taken.value)
        return _settle(program, (*tasks, *self.agenda[1:]), (*self.answers, answer))

    def follow(
        self,
        agent: DecisionAgent,
        on_answer: Callable[[Walk, Recommendation, Walk], None] | None = None,
    ) -> Walk:
        """The finished walk with every open question answered by `agent`.

        `on_answer` gets the walk before each answer, the answer, and the walk after it.
        """
        walk = self
        while walk.question is not None:
            given = agent.decide(walk.point())
            after = walk.answer(given.option)
            if on_answer is not None:
                on_answer(walk, given, after)
            walk = after
        return walk

    def finish(self, values: Mapping[str, int] | None = None) -> Walk:
        """The finished walk: values by question key where given, the static choice elsewhere.

        A value that is no option any more gives way to the nearest one.
        """
        values, walk = values or {}, self
        while walk.question is not None:
            question = walk.question
            wanted = values.get(question.key)
            option = question.default if wanted is None else nearest(question, wanted)
            walk = walk.answer(option)
        return walk

    def costs(self, model: CostModel) -> tuple[float, ...]:
        """Static cost in µs of the program right after each option of the open question."""
        if self.question is None:
            return ()
        task, predict = self.agenda[0], model.predict_us
        return tuple(
            predict(_taken(task, self.program, option.value).program)
            for option in self.question.options
        )

    def point(self, model: CostModel | None = None) -> DecisionPoint:
        """The open question as a record; with a static cost for each option if `model` is given."""
        question = self.question
        if question is None:
            raise InvalidValueError("walk", "finished", "one with an open question")
        options = question.options
        if model is not None:
            costs = self.costs(model)
            options = tuple(replace(o, cost_us=c) for o, c in zip(options, costs, strict=True))
        return DecisionPoint(
            key=question.key,
            kind=question.kind,
            text=question.text,
            options=options,
            default=question.default,
            node=question.node,
            block=question.block,
            snippet=_snippet(self.program, question.node),
            workload=self.program.workload.uri,
            target=str(self.program.target),
            hardware=_hardware(self.program.target),
            number=len(self.answers),
            answers=tuple((answer.key, answer.value) for answer in self.answers),
        )


def nearest(question: Question, value: int) -> int:
    """The option whose value is next to `value`, the smaller of equals."""
    gaps = [abs(option.value - value) for option in question.options]
    return gaps.index(min(gaps))


@lru_cache(maxsize=MAX_OPTIONS)
def _taken(task: Task, program: Program, value: int) -> Next:
    """`task.take`; who asks for the costs of all options takes one of them next."""
    return task.take(program, value)


def _settle(program: Program, agenda: tuple[Task, ...], answers: tuple[Answer, ...]) -> Walk:
    """Carry out what needs no choice."""
    while agenda:
        question = agenda[0].ask(program)
        if question is not None and len(question.options) > 1:
            return Walk(program, agenda, question, answers)
        value = None if question is None else question.options[0].value
        program, tasks = agenda[0].take(program, value)
        agenda = (*tasks, *agenda[1:])
    return Walk(program, (), None, answers)


@lru_cache(maxsize=32)
def _hardware(target: Target) -> Mapping[str, int | float | str | bool]:
    from tirgym.harness.backend import backend

    facts = backend(target.backend).describe(target)
    return {k: v for k, v in facts.items() if isinstance(v, int | float | str | bool)}


def _snippet(program: Program, node: NodeRef) -> str:
    from tirgym.harness.decisions.space import space_for

    return space_for(program).snippet(program, node)
