"""`Play`: rounds of questions, measured in one batch each, until a budget is spent or gains dry up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

from tirgym.baselines.llm.answers import Message, Proposal, Reply
from tirgym.baselines.llm.budget import BudgetSpentError, Ledger
from tirgym.baselines.llm.dialogue import Outcome, Refusal, Rules, dialogue
from tirgym.baselines.llm.endpoint import Exchange, prompt_tokens
from tirgym.baselines.llm.games import Game, Made, State
from tirgym.baselines.llm.prompts import Node, Round, Shown, round_text, shown_of, system_text
from tirgym.baselines.llm.transcript import Transcript, TranscriptOverError
from tirgym.errors import EndpointError, EvaluationError, TirgymError, UnknownNameError
from tirgym.harness.agent import Search
from tirgym.harness.evaluation import Evaluation

__all__ = ["Model", "Play", "Style"]

GAIN = 1.05
"""Growth of the best speedup that counts as one."""


class Model(Protocol):
    """Who answers: an endpoint, or a transcript."""

    together: bool
    """questions of several branches may be asked at the same time"""

    def ask(
        self,
        branch: int,
        messages: Sequence[Message],
        answer_tokens: int,
        seconds_left: float | None,
    ) -> Exchange:
        """The answer; raises EndpointError, UsageError, or TranscriptOverError."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a run is played."""

    batch: int
    branches: int
    milestone: int
    patience: int
    returns: int
    looks: int
    prompt_tokens: int
    answer_tokens: int


@dataclass
class _Branch:
    """One line of exploration."""

    number: int
    current: int = 0
    """number of the program that it stands at"""
    notes: list[str] = field(default_factory=list)
    """what its next prompt tells"""
    stopped: bool = False


class Play:
    """One run. Everything that a prompt shows comes from `shown`, so that a replay sees it again.

    `shown` answers what an earlier run saw of the program with an IR key, None where there was none;
    `trials_left` likewise for the trials that were left after a round.
    """

    def __init__(
        self,
        search: Search,
        game: Game,
        model: Model,
        ledger: Ledger,
        style: Style,
        transcript: Transcript,
        hardware: str,
        shown: Callable[[str], Shown | None] = lambda ir_key: None,
        trials_left: Callable[[int], int | None] = lambda number: None,
    ) -> None:
        self.search, self.game, self.model, self.ledger = search, game, model, ledger
        self.style, self.transcript, self.hardware = style, transcript, hardware
        self.stopped = "interrupted"
        self.failure = ""
        """what an endpoint refused in the middle of the run"""
        self.nodes: list[Node] = []
        self._shown, self._trials_left = shown, trials_left
        self._by_ir: dict[str, int] = {}
        self._branches = [_Branch(number) for number in range(style.branches)]
        self._left = search.budget.trials
        self._began = time.monotonic()
        self._over = False
        self._mark, self._stale, self._returned, self._round = 0.0, 0, 0, 0
        self._system: Message = {"role": "system", "content": system_text(game)}

    # -- the run ----------------------------------------------------------------------------

    def run(self) -> None:
        """Play until something ends it; `stopped` says what."""
        self._begin()
        while self._goes_on():
            self._round += 1
            asked = [branch for branch in self._branches if not branch.stopped]
            self._settle([(branch, outcome) for branch, outcome in self._dialogues(asked)])
            self._milestone()

    def _begin(self) -> None:
        """The unscheduled program, and what the game measures first."""
        start = self.search.start
        known = [c for c in self.search.history if c.program.ir_key == start.ir_key]
        evaluation = known[0].evaluation if known else self.search.evaluate(start)
        if evaluation is not None:
            self._add(State(start), evaluation, name="unscheduled")
        first = self.game.first()
        answers = self.search.evaluate_many([state.program for _, state in first])
        for (name, state), found in zip(first, answers, strict=False):
            self._add(state, found, name=name)
        if len(self.nodes) <= len(first):
            self._end("the budget of the search is spent")
        self._mark = max((node.speedup for node in self.nodes), default=0.0)
        for branch in self._branches:
            branch.current = max(len(self.nodes) - 1, 0)
        self._note_round()

    def _goes_on(self) -> bool:
        """Whether another round is asked for; returns to the best program where gains dry up."""
        if self._over:
            return False
        if self.search.out_of_time():
            self._end("the time is spent")
        elif self.search.remaining_trials() <= 0:
            self._end("the trials are spent")
        elif all(branch.stopped for branch in self._branches):
            self._end(self.stopped)  # as whoever stopped last said
        elif self._stale >= self.style.patience:
            self._return_to_best()
        return not self._over

    def _end(self, why: str) -> None:
        """No further round."""
        self._over, self.stopped = True, why

    def _return_to_best(self) -> None:
        """All branches go back to the best program; the end where that was done often enough."""
        rounds = f"the last {self.style.patience} rounds gained less than 5 %"
        if self._returned >= self.style.returns:
            self._end(rounds)
            return
        self._returned += 1
        self._stale = 0
        for branch in self._branches:
            branch.current = self._home()
            branch.notes.append(f"{rounds}: back at the best program; try something else")
        self.transcript.add("note", text=f"round {self._round}: {rounds}; back at the best program")

    def _milestone(self) -> None:
        """Branches that fell behind go on from the best program that any of them found."""
        if len(self._branches) == 1 or self._round % self.style.milestone:
            return
        best = self.nodes[self._home()]
        for branch in self._branches:
            if self.nodes[branch.current].speedup * GAIN < best.speedup:
                branch.current = best.number
                branch.notes.append(f"explorers meet: you go on from #{best.number}")

    def _best(self) -> int:
        """Number of the fastest program, the first of equals."""
        return max(range(len(self.nodes)), key=lambda n: (self.nodes[n].speedup, -n))

    def _home(self) -> int:
        """Number of the fastest program that a branch can stand at."""
        numbers = range(min(self.game.lowest, len(self.nodes) - 1), len(self.nodes))
        return max(numbers, key=lambda n: (self.nodes[n].speedup, -n))

    # -- asking -----------------------------------------------------------------------------

    def _dialogues(self, asked: Sequence[_Branch]) -> list[tuple[_Branch, Outcome]]:
        """What comes of a round of each branch; as far as they got, where no more can be asked."""
        states = [node.state for node in self.nodes]
        outcomes = {branch.number: Outcome() for branch in asked}
        talks = {b.number: self._dialogue(b, states, len(asked), outcomes[b.number]) for b in asked}
        waiting = {number: next(talk) for number, talk in talks.items()}
        while waiting:
            replies, waiting = self._ask(waiting), {}
            for number, reply in replies.items():
                with suppress(StopIteration):
                    waiting[number] = talks[number].send(reply)
        return [(branch, outcomes[branch.number]) for branch in asked]

    def _dialogue(
        self, branch: _Branch, states: Sequence[State], branches: int, outcome: Outcome
    ) -> Generator[list[Message], Reply, None]:
        style = self.style
        batch = max(1, min(style.batch, math.ceil(self._left / branches)))
        start = self.search.start
        asked = Round(
            start.workload,
            start.target,
            self.hardware,
            self.nodes,
            branch.current,
            self._best(),
            self._left,
            batch,
            tuple(branch.notes),
            branch.number,
            style.branches,
        )
        branch.notes = []
        text = round_text(asked, self.game, self.search.cost, style.prompt_tokens)
        messages = [self._system, {"role": "user", "content": text}]
        rules = Rules(batch, style.looks)
        return dialogue(messages, self.game, states, branch.current, rules, outcome)

    def _ask(self, waiting: dict[int, list[Message]]) -> dict[int, Reply]:
        """The replies to the questions; where one cannot be asked, the run ends after the round."""
        rooms: dict[int, tuple[int, int]] = {}
        for number, messages in waiting.items():
            prompt = prompt_tokens(messages)
            try:
                rooms[number] = prompt, self.ledger.reserve(prompt, self.style.answer_tokens)
            except BudgetSpentError as error:
                self._end(str(error))
                break
        answered = self._answers({number: waiting[number] for number in rooms}, rooms)
        replies: dict[int, Reply] = {}
        failure: Exception | None = None
        for number, found in answered:
            prompt, room = rooms[number]
            if isinstance(found, Exception):
                self.ledger.settle(prompt, room, None, 0)
                failure = failure or found
                continue
            self.ledger.settle(prompt, room, found.usage, found.retries)
            self.transcript.exchange(number, self._round, waiting[number], found)
            replies[number] = found.reply
        if failure is not None:
            self._failed(failure)
        return replies

    def _answers(
        self, waiting: dict[int, list[Message]], rooms: dict[int, tuple[int, int]]
    ) -> list[tuple[int, Exchange | Exception]]:
        """Ask, all at the same time where the model can be asked so; in order of the branches."""
        seconds_left = self._seconds_left()

        def ask(number: int) -> Exchange | Exception:
            try:
                return self.model.ask(number, waiting[number], rooms[number][1], seconds_left)
            except (TirgymError, TranscriptOverError) as error:  # raised again by `_failed`
                return error

        if len(waiting) < 2 or not self.model.together:
            return [(number, ask(number)) for number in waiting]
        queues: dict[int, SimpleQueue[Exchange | Exception]] = {n: SimpleQueue() for n in waiting}

        def put(number: int) -> None:
            found: Exchange | Exception = EvaluationError("a question to the model was lost")
            try:
                found = ask(number)
            finally:  # whatever happens, the run does not wait for ever
                queues[number].put(found)

        for number in queues:  # daemons: an interrupted run does not wait for them
            threading.Thread(target=put, args=(number,), daemon=True).start()
        return [(number, queue.get()) for number, queue in queues.items()]

    def _seconds_left(self) -> float | None:
        limit = self.search.budget.seconds
        return None if limit is None else limit - (time.monotonic() - self._began)

    def _failed(self, error: Exception) -> None:
        """End the run; before the first answer, and for what nobody expects, by raising."""
        over = isinstance(error, TranscriptOverError)
        refused = isinstance(error, EndpointError | UnknownNameError) and self.ledger.calls > 0
        if not over and not refused:
            raise error
        self.failure = "" if over else str(error)
        self._end(str(error))

    # -- measuring --------------------------------------------------------------------------

    def _settle(self, outcomes: Sequence[tuple[_Branch, Outcome]]) -> None:
        """Measure what the branches propose, one of each in turn, in one batch."""
        waiting: list[tuple[_Branch, Proposal, Made]] = []
        longest = max((len(outcome.made) for _, outcome in outcomes), default=0)
        for turn in range(longest):
            waiting += [(b, *o.made[turn]) for b, o in outcomes if turn < len(o.made)]
        for branch, outcome in outcomes:
            self._refuse(branch, outcome.refused)
            if outcome.stop is not None:
                branch.stopped = True
                if not self._over:
                    self.stopped = f"the model stopped: {outcome.stop}"
        fresh = self._new(waiting)
        found: dict[int, list[Node]] = {}
        programs = [made.state.program for _, _, made in fresh]
        answered = 0
        for (branch, proposal, made), evaluation in zip(
            fresh, self.search.evaluate_many(programs), strict=False
        ):
            node = self._add(made.state, evaluation, "", proposal, branch, made.note)
            found.setdefault(branch.number, []).append(node)
            answered += 1
        for branch, _ in outcomes:
            passed = [node for node in found.get(branch.number, ()) if node.speedup]
            if passed:
                branch.current = max(passed, key=lambda node: node.speedup).number
        self._note_round()
        best = self.nodes[self._best()].speedup
        grown = best >= GAIN * self._mark
        self._mark, self._stale = (best, 0) if grown else (self._mark, self._stale + 1)
        if answered < len(fresh) and not self._over:
            late = self.search.out_of_time()
            self._end("the time is spent" if late else "the budget of the search is spent")

    def _new(
        self, waiting: Sequence[tuple[_Branch, Proposal, Made]]
    ) -> list[tuple[_Branch, Proposal, Made]]:
        """Those whose program is new; the others are told apart, and cost nothing."""
        fresh: dict[str, tuple[_Branch, Proposal, Made]] = {}
        for branch, proposal, made in waiting:
            key = made.state.program.ir_key
            number = self._by_ir.get(key)
            if number is None and key not in fresh:
                fresh[key] = (branch, proposal, made)
                continue
            same = f"#{number}" if number is not None else "another proposal of this round"
            self._refuse(branch, [Refusal(f"makes the same program as {same}", proposal)])
        return list(fresh.values())

    def _refuse(self, branch: _Branch, refusals: Sequence[Refusal]) -> None:
        for refusal in refusals:
            what = _claim(refusal.proposal)
            self.transcript.add(
                "refused",
                branch=branch.number,
                round=self._round,
                message=refusal.message,
                **what,
            )
            actions = "; ".join(what["actions"])
            branch.notes.append(f"{f'{actions}: ' if actions else ''}{refusal.message}"[:300])

    def _add(
        self,
        state: State,
        evaluation: Evaluation,
        name: str = "",
        proposal: Proposal | None = None,
        branch: _Branch | None = None,
        note: str = "",
    ) -> Node:
        """A measured program."""
        key = state.program.ir_key
        current = None if branch is None else branch.current
        base = current if proposal is None or proposal.base is None else proposal.base
        node = Node(
            number=len(self.nodes),
            state=state,
            shown=self._shown(key) or shown_of(evaluation),
            predicted_us=self.search.cost.predict_us(state.program),
            name=name,
            base=base,
            actions=proposal.actions if proposal else (),
            predicted=proposal.predicted if proposal else None,
            why=proposal.why if proposal else "",
            branch=branch.number if branch else 0,
            note=note,
        )
        self.nodes.append(node)
        self._by_ir.setdefault(key, node.number)
        self.transcript.add(
            "measured",
            number=node.number,
            name=name,
            branch=node.branch,
            round=self._round,
            ir_key=key,
            predicted_us=node.predicted_us,
            note=note,
            **{**_claim(proposal), "base": base},
            **asdict(node.shown),
        )
        return node

    def _note_round(self) -> None:
        """The trials that are left, as this run counts them or as the replayed one did."""
        recorded = self._trials_left(self._round)
        self._left = self.search.remaining_trials() if recorded is None else recorded
        best = self._best() if self.nodes else None
        self.transcript.add("round", round=self._round, trials_left=self._left, best=best)


def _claim(proposal: Proposal | None) -> dict[str, Any]:
    """What a line of the transcript says of a proposal."""
    return {
        "base": proposal.base if proposal else None,
        "actions": list(proposal.actions) if proposal else [],
        "predicted_speedup": proposal.predicted if proposal else None,
        "why": proposal.why if proposal else "",
    }
