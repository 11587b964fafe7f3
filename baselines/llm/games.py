"""What a language model plays: the compiler's open questions, or transforms; as texts both ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tirgym.baselines.choices import SPACES, action_table
from tirgym.errors import IllegalTransformError, InvalidValueError, UnknownNameError
from tirgym.harness.account import account, has_account
from tirgym.harness.agent import Search
from tirgym.harness.cost import CostModel
from tirgym.harness.decisions import Question, Walk, design_space
from tirgym.harness.decisions.walk import nearest
from tirgym.harness.explain import describe
from tirgym.harness.program import Program
from tirgym.spaces.action_text import OptionTexts, TransformTexts, grouped
from tirgym.spaces.graph import encoder_for
from tirgym.spaces.text import ascii_text
from tirgym.spaces.text_budget import Part, fit
from tirgym.spaces.transform_space import STOP, TransformSpace

__all__ = ["SPACES", "Game", "Made", "RefusedError", "State", "make_game", "program_lines"]

_LOOK_TOKENS = 1_500


class RefusedError(Exception):
    """Actions that make no program; the message is one line that says what would be accepted."""


@dataclass(frozen=True)
class State:
    """A program that a proposal can start from."""

    program: Program
    values: Mapping[str, int] = field(default_factory=dict)
    """answers by question key, where the program was made by answers"""


@dataclass(frozen=True)
class Made:
    """What actions make of a state."""

    state: State
    note: str = ""
    """what was left out, "" if nothing was"""


class Game(Protocol):
    """The rules of one space, in words."""

    rules: Sequence[str]
    """paragraphs for the model: what a program is made of and how actions read"""

    lowest: int
    """number of the first program that a branch can stand at"""

    def first(self) -> list[tuple[str, State]]:
        """Programs to measure before the model is asked, with a name for each."""

    def base(self, number: int, states: Sequence[State]) -> State:
        """The state number `number`; raises RefusedError if nothing can start from it."""

    def make(self, base: State, actions: Sequence[str]) -> Made:
        """The program after `actions`; raises RefusedError with one line."""

    def choices(self, state: State) -> list[Part]:
        """What can be done to the program of `state`."""

    def look(self, base: State, made: Made) -> str:
        """What `make` made of `base`, without measuring it."""


def make_game(space: str, search: Search, costs: bool) -> Game:
    """The rules of `space`; with `costs`, options show what the static cost model predicts.

    Raises UnknownNameError for a space that does not exist, or not for the backend.
    """
    if space not in SPACES:
        raise UnknownNameError("space of agent llm", space, SPACES)
    return DecisionGame(search, costs) if space == "decision" else TransformGame(search, space)


def _numbered(number: int, states: Sequence[State]) -> State:
    if not 0 <= number < len(states):
        accepted = f"the number of a program so far, 0 to {len(states) - 1}"
        raise RefusedError(f"base: {number} is no program; expected {accepted}")
    return states[number]


# -- the compiler's questions ---------------------------------------------------------------


class DecisionGame:
    """Answers to the compiler's open questions; what is not answered keeps the base's answer."""

    rules: Sequence[str] = (
        (
            "A program is made by answering the compiler's open questions. Every combination of "
            "answers is a legal program that computes the same function. Questions depend on earlier "
            "answers: another structure of loops opens other questions; what you leave open keeps the "
            "answer of the base, or gets the compiler's static choice."
        ),
        (
            'An action is "KEY = ANSWER", such as "c.vector = 16 lanes", with an answer from the list '
            "of options. Change one or a few answers of a base at a time."
        ),
    )
    lowest = 1

    def __init__(self, search: Search, costs: bool) -> None:
        self._root, self._decided = design_space(search.start), search.decided
        self._cost: CostModel = search.cost
        self._show_costs = costs
        self._lines: dict[str, list[tuple[str, str, str]]] = {}
        """by IR key: for each question its key, and its line with costs and without"""

    def first(self) -> list[tuple[str, State]]:
        """The compiler's own choices."""
        return [("the compiler's static choices", self._state(self._root.finish()))]

    def base(self, number: int, states: Sequence[State]) -> State:
        """Any measured program; the unscheduled one, without answers, means the static choices."""
        return _numbered(number, states)

    def make(self, base: State, actions: Sequence[str]) -> Made:
        """See `Game`."""
        wanted = self._wanted(actions)
        walk, number = self._root, len(wanted)
        asked: list[str] = []
        while walk.question is not None:
            question = walk.question
            asked.append(question.key)
            text = wanted.pop(question.key.casefold(), None)
            walk = walk.answer(_option(question, text, base.values))
        if wanted and len(wanted) == number:
            keys = ", ".join(dict.fromkeys(asked))
            raise RefusedError(f"{', '.join(wanted)}: not asked here; expected keys of {keys}")
        note = f"not asked after the other answers: {', '.join(wanted)}" if wanted else ""
        return Made(self._state(walk), note)

    def _wanted(self, actions: Sequence[str]) -> dict[str, str]:
        """Action by key."""
        wanted: dict[str, str] = {}
        for key, text in zip(_keys(actions), actions, strict=True):
            if not key:
                form = '"KEY = ANSWER", such as "c.vector = 16 lanes"'
                raise RefusedError(f"action: {text[:120]!r} is not accepted; expected {form}")
            if key in wanted:
                raise RefusedError(f"{key} is answered twice; expected one answer for each key")
            wanted[key] = text
        return wanted

    def _state(self, walk: Walk) -> State:
        values = {answer.key: answer.value for answer in walk.answers}
        self._decided[walk.program.ir_key] = values
        return State(walk.program, values)

    def choices(self, state: State) -> list[Part]:
        """A line for each question of the state, with its options."""
        lines = self._questions(state)
        head = "Questions: KEY: question -> options (the answer of the current program in *stars*)"
        costs = ", each with the static cost right after it" if self._show_costs else ""
        full = [with_costs for _, with_costs, _ in lines]
        short = [without for _, _, without in lines]
        return [Part(["", f"{head}{costs}:"]), Part(full, 5, "questions", shorter=short)]

    def _questions(self, state: State) -> list[tuple[str, str, str]]:
        key = state.program.ir_key
        if key not in self._lines:
            self._lines[key] = list(self._question_lines(state))
        return self._lines[key]

    def _question_lines(self, state: State) -> Iterator[tuple[str, str, str]]:
        walk = self._root
        while walk.question is not None:
            question = walk.question
            option = _option(question, None, state.values)
            costs = walk.costs(self._cost) if self._show_costs else None
            yield question.key, _line(question, option, costs), _line(question, option, None)
            walk = walk.answer(option)

    def look(self, base: State, made: Made) -> str:
        """Predicted time, the loops, and the questions that the base did not have."""
        known = {key for key, _, _ in self._questions(base)}
        new = [line for key, line, _ in self._questions(made.state) if key not in known]
        questions = Part(new or ["none"], 5, "questions")
        return _look(self._cost, base, made, [Part(["", "Questions that this opens:"]), questions])


def _keys(actions: Sequence[str]) -> list[str]:
    """The key of each action, "" where it has none."""
    parts = [action.strip(" `'\"\n").partition("=") for action in actions]
    return [key.strip(" `'\"").casefold() if equals else "" for key, equals, _ in parts]


def _option(question: Question, text: str | None, values: Mapping[str, int]) -> int:
    """The option that `text` names, else the one of `values`, else the static choice."""
    if text is not None:
        try:
            return OptionTexts(question).read(text)
        except InvalidValueError as error:
            raise RefusedError(str(error)) from None
    value = values.get(question.key)
    return question.default if value is None else nearest(question, value)


def _line(question: Question, chosen: int, costs: Sequence[float] | None) -> str:
    shown = []
    for place, text in enumerate(OptionTexts(question).texts()):
        label = text.partition(" = ")[2]
        label = f"*{label}*" if place == chosen else label
        shown.append(f"{label} [{costs[place]:.4g} us]" if costs else label)
    return ascii_text(f"  {question.key}: {question.text} -> {' | '.join(shown)}")


# -- transforms -----------------------------------------------------------------------------


class TransformGame:
    """Transforms of an action table, applied to the base one after the other."""

    rules: Sequence[str] = (
        (
            "A program is made by applying transforms to a base, one after the other. Loops and blocks "
            "are addressed by the numbers in the list of loops and blocks; each transform numbers them "
            "anew, from the outside in and from the top down, so later transforms of a proposal count "
            "on what the earlier ones left. A transform that is not legal makes no program."
        ),
        (
            'An action is one transform, such as "Split(loop=1, factor=8)". In the list of legal '
            "actions, a|b stands for one of a and b."
        ),
    )
    lowest = 0

    def __init__(self, search: Search, space: str) -> None:
        self._cost: CostModel = search.cost
        self._actions = TransformSpace(action_table(search, space))

    def first(self) -> list[tuple[str, State]]:
        """None: the unscheduled program is known."""
        return []

    def base(self, number: int, states: Sequence[State]) -> State:
        """Any measured program."""
        return _numbered(number, states)

    def make(self, base: State, actions: Sequence[str]) -> Made:
        """See `Game`."""
        program = base.program
        for place, text in enumerate(actions):
            texts = self._texts(program)
            try:
                transform = self._actions.transform(texts.read(text, legal=False))
                if transform is not None:
                    program = program.apply(transform)
            except (InvalidValueError, IllegalTransformError) as error:
                after = f" after {'; '.join(actions[:place])}" if place else ""
                raise RefusedError(f"{self._why(texts, text, error)}{after}") from None
        if program is base.program:
            raise RefusedError(f"actions: {list(actions)!r} do nothing; expected a transform")
        return Made(State(program))

    def _why(self, texts: TransformTexts, text: str, error: Exception) -> str:
        """Why an action is none here, and what is."""
        if isinstance(error, InvalidValueError):
            return str(error)
        try:
            texts.read(text)
        except InvalidValueError as accepted:
            return f"{error}; {accepted}"
        return str(error)

    def _texts(self, program: Program) -> TransformTexts:
        mask = self._actions.mask(program.legal_mask(self._actions.vocabulary))
        return TransformTexts(self._actions, mask)

    def choices(self, state: State) -> list[Part]:
        """The legal actions, grouped."""
        texts = [text for text in self._texts(state.program).texts() if text != STOP]
        lines = [f"  {line}" for line in grouped(texts)] or ["  none"]
        head = f"Legal actions on the current program ({len(texts)}):"
        return [Part(["", head]), Part(lines, 5, "legal actions")]

    def look(self, base: State, made: Made) -> str:
        """Predicted time, the loops, and the legal actions."""
        return _look(self._cost, base, made, self.choices(made.state))


def _look(cost: CostModel, base: State, made: Made, more: Sequence[Part]) -> str:
    program = made.state.program
    before, after = cost.predict_us(base.program), cost.predict_us(program)
    tree = [ascii_text(line) for line in encoder_for(program.dialect).tree(program)]
    notes = [f"Note: {made.note}"] if made.note else []
    head = [*notes, f"Static cost: {after:.4g} us (base: {before:.4g} us)", "Loops and blocks:"]
    return fit([Part(head), Part(tree, 3, "loops and blocks", nested=True), *more], _LOOK_TOKENS)


def program_lines(state: State, cost: CostModel) -> list[Part]:
    """Loops, IR and static profile of a program."""
    program = state.program
    tree = [ascii_text(line) for line in encoder_for(program.dialect).tree(program)]
    ir = [ascii_text(line) for line in program.text().splitlines() if line[:1] not in ("", "#")]
    profile = [f"  static cost: {cost.predict_us(program):.4g} us"]
    if has_account(program):
        profile += [f"  {ascii_text(said.text)}" for said in describe(account(program))]
    return [
        Part(["", "Loops and blocks:"]),
        Part(tree, 2, "loops and blocks", nested=True),
        Part(["", "IR:"]),
        Part(ir, 3, "lines", nested=True),
        Part(["", "Static profile:"]),
        Part(profile, 2, "figures"),
    ]
