"""`dialogue`: one round with a model, from the prompt to programs, with looks and one correction."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from tirgym.baselines.llm.answers import (
    Answer,
    Call,
    Look,
    MalformedAnswerError,
    Message,
    Proposal,
    Propose,
    Reply,
    Stop,
    follow_up,
    read_answers,
)
from tirgym.baselines.llm.games import Game, Made, RefusedError, State

__all__ = ["Outcome", "Refusal", "Rules", "dialogue"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A proposal, or a whole answer, that made no program."""

    message: str
    proposal: Proposal | None = None


@dataclass
class Outcome:
    """What came of a round."""

    made: list[tuple[Proposal, Made]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    """those that stood after the correction: no-ops"""
    stop: str | None = None
    """why the model wants to end, None if it does not"""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a round may have."""

    batch: int
    """proposals that are taken"""
    looks: int
    """looks ahead that are answered"""


def dialogue(
    messages: Sequence[Message],
    game: Game,
    states: Sequence[State],
    current: int,
    rules: Rules,
    outcome: Outcome,
) -> Generator[list[Message], Reply, None]:
    """Yields questions and is sent replies; `outcome` is what came of it, at any time.

    An answer that cannot be read, or proposals that make no program, are answered once with what
    would be accepted; what is wrong then is a no-op. Looks do not count as answers.
    """
    said, looks, corrected = list(messages), rules.looks, False
    while True:
        reply = yield said
        try:
            answers = read_answers(reply)
        except MalformedAnswerError as error:
            if corrected:
                outcome.refused.append(Refusal(f"the answer could not be read: {error}"))
                return
            corrected = True
            said = [*said, *follow_up(reply, {}, f"That could not be read: {error}")]
            continue
        turn = _Turn(game, states, current, rules.batch - len(outcome.made), looks)
        results = [(call, turn.result(answer)) for call, answer in answers]
        looks = turn.looks
        outcome.made += turn.made
        outcome.stop = outcome.stop or turn.stop
        if turn.proposed:
            outcome.refused = [*turn.refused, *turn.surplus]
        again = bool(turn.refused) and not corrected and outcome.stop is None
        if not again and (turn.proposed or outcome.stop is not None or not turn.looked):
            return
        corrected = corrected or again
        said = [*said, *_continued(reply, results)]


def _continued(reply: Reply, results: Sequence[tuple[Call | None, str]]) -> list[Message]:
    by_call = {call.id: text for call, text in results if call is not None}
    return follow_up(reply, by_call, "\n".join(text for _, text in results))


@dataclass
class _Turn:
    """The answers of one reply."""

    game: Game
    states: Sequence[State]
    current: int
    room: int
    looks: int
    made: list[tuple[Proposal, Made]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    surplus: list[Refusal] = field(default_factory=list)
    stop: str | None = None
    proposed: bool = False
    looked: bool = False
    """a look was answered, or refused for the first time"""

    def result(self, answer: Answer) -> str:
        """What the model is told."""
        if isinstance(answer, Stop):
            self.stop = answer.why or "the model stopped"
            return "The search ends."
        if isinstance(answer, Look):
            return self._look(answer)
        return self._propose(answer)

    def _look(self, answer: Look) -> str:
        self.looks -= 1
        if self.looks < 0:
            self.looked = self.looks == -1
            return "No look is left in this round. Propose programs, or stop."
        self.looked = True
        try:
            base = self._base(answer.base)
            return self.game.look(base, self.game.make(base, answer.actions))
        except RefusedError as error:
            return str(error)

    def _propose(self, answer: Propose) -> str:
        self.proposed = True
        lines = []
        for number, proposal in enumerate(answer.proposals, 1):
            if len(self.made) >= self.room:
                more = f"one too many; expected at most {self.room}"
                self.surplus.append(Refusal(more, proposal))
                continue
            try:
                made = self.game.make(self._base(proposal.base), proposal.actions)
            except RefusedError as error:
                self.refused.append(Refusal(str(error), proposal))
                lines.append(f"Proposal {number} is refused: {error}")
            else:
                self.made.append((proposal, made))
                lines.append(f"Proposal {number} is accepted.{_noted(made)}")
        if self.refused:
            lines.append("Propose again what was refused, corrected, and nothing else.")
        return "\n".join(lines)

    def _base(self, number: int | None) -> State:
        return self.game.base(self.current if number is None else number, self.states)


def _noted(made: Made) -> str:
    return f" Note: {made.note}." if made.note else ""
