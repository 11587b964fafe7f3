"""Search around the advice of a decision agent, in this process or another.

    tirgym serve --agent policy --port 8077
    tirgym optimize softmax --agent tirgym.serving.search:AdvisedAgent --option url=http://127.0.0.1:8077

The first program that is measured is the agent's own: its answer to every question. The others differ
from the best so far in an answer or more that are drawn, and ask the agent about what follows, in
batches: limited discrepancies from a heuristic (Harvey and Ginsberg, "Limited Discrepancy Search",
IJCAI 1995), drawn instead of listed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.decisions import DecisionAgent, Guard, Walk, design_space
from tirgym.harness.decisions.walk import nearest
from tirgym.serving.agents import decision_agent_maker
from tirgym.serving.compile_guard import BUDGET_MS, CACHED, FAILURES, RETRY_S, compile_guard

__all__ = ["AdvisedAgent", "Args"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options; one of `url`, `command` and `agent` says who advises."""

    url: str = ""
    """a service over HTTP (tirgym serve)"""
    command: str = ""
    """a program that is started and asked over stdin and stdout (tirgym serve --stdio)"""
    agent: str = ""
    """an agent in this process: a name of `DECISION_AGENTS`, or package.module:Class"""
    token_file: str = ""
    """the token that the service at `url` asks for; TIRGYM_SERVE_TOKEN holds one too"""
    budget_ms: float = BUDGET_MS
    """for a decision; after it the static choice is taken"""
    confidence: float = 0.0
    """answers with less give way to the static choice"""
    retry_s: float = RETRY_S
    """how long an agent that failed three times in a row is left alone"""
    costs: bool = True
    """show the static cost of each option"""
    batch: int = 16
    """walks that are asked about and measured together"""
    fruitless: int = 200
    """walks in a row that end in a known program before the agent gives up"""


class AdvisedAgent:
    """Measures what an agent advises, and what lies around it."""

    name = "advised"
    spaces = ("decision",)

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        for field in ("batch", "fruitless"):
            if getattr(args, field) < 1:
                raise InvalidValueError(field, getattr(args, field), "at least 1")
        given = [name for name in _ADVISORS if getattr(args, name)]
        if len(given) != 1:
            accepted = "one of url=http://…, command=… and agent=NAME"
            raise InvalidValueError("options of agent advised", " and ".join(given), accepted)
        self.guard = compile_guard(
            _ADVISORS[given[0]](args),
            args.budget_ms,
            args.confidence,
            CACHED,
            FAILURES,
            args.retry_s,
        )

    def run(self, search: Search) -> None:
        """Spend the budget; raises UnknownNameError for a backend without a design space."""
        try:
            _Run(self.args, search, self.guard).play()
        finally:
            close = getattr(self.guard.agent, "close", None)
            if callable(close):
                close()

    def notes(self) -> list[str]:
        """What came of the advice, and the first reasons why it was not taken."""
        report = self.guard.report
        return [f"advice: {report}", *(f"static choice: {text}" for text in report.messages[:3])]


def _over_http(args: Args) -> DecisionAgent:
    from tirgym.serving.remote import RemoteAgent

    file = Path(args.token_file)
    token = file.read_text("utf-8", "replace").strip() if args.token_file else None
    return RemoteAgent(args.url, args.budget_ms / 1000, token)


def _over_stdio(args: Args) -> DecisionAgent:
    from tirgym.serving.stdio_agent import StdioAgent

    try:
        command = shlex.split(args.command)
    except ValueError as error:
        accepted = f"a program and its arguments, quoted as in a shell ({error})"
        raise InvalidValueError("command", args.command, accepted) from None
    return StdioAgent(command, args.budget_ms / 1000)


_ADVISORS: Mapping[str, Callable[[Args], DecisionAgent]] = {
    "url": _over_http,
    "command": _over_stdio,
    "agent": lambda args: decision_agent_maker(args.agent)(),
}
"""By the option that is given."""


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search, guard: Guard) -> None:
        self.args, self.search, self.guard = args, search, guard
        self.root = design_space(search.start)
        self.drawn: dict[str, Mapping[str, int]] = {}
        """by IR key, the answers that were drawn"""
        self.walks: dict[str, Walk] = {}
        """by IR key, the first walk that led there"""
        self.values: dict[str, tuple[int, ...]] = {}
        """by question key, what can be answered"""

    def play(self) -> None:
        """Measure what is advised, then what lies around the best."""
        if not self._measure([{}]) or self.root.done:
            return
        fruitless = 0
        while fruitless < self.args.fruitless and not self.search.out_of_time():
            number = min(self.args.batch, max(1, self.search.remaining_trials()))
            known = len(self.walks)
            if not self._measure([self._deviation() for _ in range(number)]):
                return
            fruitless = 0 if len(self.walks) > known else fruitless + number

    def _deviation(self) -> dict[str, int]:
        """The drawn answers of the best program, and another one or more."""
        rng, best = self.search.rng, self._best()
        drawn, answers = dict(self.drawn[best]), self.walks[best].answers
        for _ in range(int(rng.geometric(0.5))):
            key = answers[int(rng.integers(len(answers)))].key
            drawn[key] = self.values[key][int(rng.integers(len(self.values[key])))]
        return drawn

    def _best(self) -> str:
        """IR key of the fastest program; of the one that was advised if none is faster."""
        speedups = {
            candidate.program.ir_key: candidate.evaluation.speedup or 0.0
            for candidate in self.search.history
        }
        return max(self.walks, key=lambda key: speedups.get(key, 0.0))

    def _measure(self, drawn: Sequence[Mapping[str, int]]) -> bool:
        """Walk, and measure what is new; whether there is budget left."""
        programs = []
        for answers, walk in zip(drawn, self._follow(drawn), strict=True):
            key = walk.program.ir_key
            if key not in self.walks:
                self.drawn[key], self.walks[key] = answers, walk
                self.search.decided[key] = {answer.key: answer.value for answer in walk.answers}
                programs.append(walk.program)
        return sum(1 for _ in self.search.evaluate_many(programs)) == len(programs)

    def _follow(self, drawn: Sequence[Mapping[str, int]]) -> list[Walk]:
        """Finished walks: the drawn answers where there are such, the agent's elsewhere.

        The questions that several walks have open at once are asked together.
        """
        cost = self.search.cost if self.args.costs else None
        walks, open_walks = [self.root] * len(drawn), list(range(len(drawn)))
        while open_walks := [i for i in open_walks if not walks[i].done]:
            asked = []
            for i in open_walks:
                question = walks[i].question
                assert question is not None  # those are open
                self.values[question.key] = tuple(option.value for option in question.options)
                value = drawn[i].get(question.key)
                if value is None:
                    asked.append(i)
                else:
                    walks[i] = walks[i].answer(nearest(question, value))
            answers = self.guard.decide_many([walks[i].point(cost) for i in asked])
            for i, answer in zip(asked, answers, strict=True):
                walks[i] = walks[i].answer(int(answer.option))
        return walks
