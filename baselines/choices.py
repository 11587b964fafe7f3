"""`Choices`: a program and the next choice about it, whatever vocabulary the choices are made in.

Search agents that go from choice to choice play the compiler's decision points and the transforms
of an action table alike: a `Walk` through a design space has this form already, and `Steps` gives
it to a `Vocabulary`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import numpy as np

from tirgym.errors import UnknownNameError
from tirgym.harness.agent import Search
from tirgym.harness.decisions import Walk, design_space
from tirgym.harness.macros import SCHEDULE_VOCABULARIES, VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.program import Program
from tirgym.harness.vocabulary import Vocabulary

__all__ = [
    "SCHEDULE_SPACES",
    "SPACES",
    "Asked",
    "Choices",
    "Steps",
    "action_table",
    "begin_choices",
    "draw",
    "nearest_option",
    "position",
    "wanted_option",
]

SPACES = ("decision", *VOCABULARY_NAMES)
"""The compiler's own decision points, and the action tables by name."""
SCHEDULE_SPACES = ("decision", *SCHEDULE_VOCABULARIES)
"""Those that a search which goes by predictions can play."""


class Valued(Protocol):
    """One option."""

    @property
    def value(self) -> int:
        """What it means; options of near values are alike."""

    @property
    def label(self) -> str:
        """In words; options of one label are drawn together as often as one of another."""


class Asked(Protocol):
    """The open choice."""

    @property
    def key(self) -> str:
        """Names the choice; equal in all walks that meet it."""

    @property
    def options(self) -> Sequence[Valued]:
        """At least one."""

    @property
    def default(self) -> int:
        """The option that is taken without advice."""


class Taken(Protocol):
    """A choice that was made."""

    @property
    def key(self) -> str:
        """Of the choice."""

    @property
    def value(self) -> int:
        """Of the option that was taken."""


class Choices(Protocol):
    """A program as far as it is chosen; immutable."""

    @property
    def program(self) -> Program:
        """The program so far; a legal one at any time."""

    @property
    def question(self) -> Asked | None:
        """The next choice; None when there is none."""

    @property
    def answers(self) -> Sequence[Taken]:
        """The choices that were made, in order."""

    def answer(self, option: int) -> Self:
        """What follows from an option."""


class Step(NamedTuple):
    """One legal action, or the end of the walk."""

    value: int
    """the action; the size of the table to stop"""
    label: str
    """kind of the transform"""


class NextStep(NamedTuple):
    """Which transform comes next."""

    key: str
    options: tuple[Step, ...]
    default: int


class TakenStep(NamedTuple):
    """A transform that was applied."""

    key: str
    value: int


@dataclass(frozen=True)
class Steps:
    """A walk of at most `depth` actions of a vocabulary; every choice offers to stop, the default.

    The n-th choice is called "n.step", so that two walks cross step by step.
    """

    program: Program
    vocabulary: Vocabulary
    depth: int
    answers: tuple[TakenStep, ...] = ()
    stopped: bool = False

    @cached_property
    def question(self) -> NextStep | None:
        """The legal actions, STOP last; None after STOP, at full depth, and where nothing is legal."""
        if self.stopped or len(self.answers) >= self.depth:
            return None
        legal = np.flatnonzero(self.program.legal_mask(self.vocabulary))
        if not len(legal):
            return None
        options = (
            *(Step(int(action), self.vocabulary[int(action)].name) for action in legal),
            Step(len(self.vocabulary), "STOP"),
        )
        return NextStep(f"{len(self.answers)}.step", options, len(options) - 1)

    def answer(self, option: int) -> Steps:
        """The walk after one more action, or after STOP."""
        question = self.question
        assert question is not None  # callers ask only where there is a choice
        value = question.options[option].value
        answers = (*self.answers, TakenStep(question.key, value))
        if value == len(self.vocabulary):
            return replace(self, answers=answers, stopped=True)
        return replace(self, program=self.program.apply(self.vocabulary[value]), answers=answers)


def begin_choices(search: Search, space: str, depth: int) -> Choices:
    """The first choice about the program that `search` starts from.

    "primitive" plays the vocabulary of the search, "macro" and "both" the table of that name; walks
    through a vocabulary have at most `depth` actions. Raises UnknownNameError for a space that does
    not exist, or not for the backend.
    """
    if space not in SPACES:
        raise UnknownNameError("space", space, SPACES)
    if space == "decision":
        return design_space(search.start)
    return Steps(search.start, action_table(search, space), depth)


def action_table(search: Search, space: str) -> Vocabulary:
    """The vocabulary of the search for "primitive", else the table called `space`."""
    vocabulary = search.vocabulary
    if space == "primitive":
        return vocabulary
    named = named_vocabulary(space, search.start.target.backend, limits=vocabulary.limits)
    return vocabulary if vocabulary.digest == named.digest else named


def position(state: Choices) -> Hashable:
    """Equal for states with the same program and the same choices left, whatever way led to them.

    IR keys are blind to names, agendas are not: walks that differ in names stay apart.
    """
    left = state.agenda if isinstance(state, Walk) else (len(state.answers), state.question is None)
    return state.program.ir_key, left


def draw(question: Asked, rng: np.random.Generator) -> int:
    """A random option; where several share a label, the label is drawn first."""
    labels = list(dict.fromkeys(option.label for option in question.options))
    number = int(rng.integers(len(labels)))
    if len(labels) == len(question.options):
        return number
    alike = [i for i, option in enumerate(question.options) if option.label == labels[number]]
    return alike[int(rng.integers(len(alike)))]


def wanted_option(question: Asked, values: Mapping[str, int]) -> int:
    """The option of `values`, the value by key, or the default."""
    value = values.get(question.key)
    return question.default if value is None else nearest_option(question, value)


def nearest_option(question: Asked, value: int) -> int:
    """The option whose value is next to `value`, the smaller of equals."""
    gaps = [abs(option.value - value) for option in question.options]
    return gaps.index(min(gaps))
