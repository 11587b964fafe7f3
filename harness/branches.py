"""`Branches`: several agents explore side by side; what they propose is measured in one batch.

Each branch runs until it wants verdicts. When all of them do, a milestone is reached: their programs
are merged into one batch, one of each branch in turn, and every branch gets its verdicts. So long
batches reach the evaluator, which builds while it times, and what one branch has measured costs
another one nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from queue import SimpleQueue

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Agent, Search
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program

__all__ = ["Branches"]


class Branches:
    """An agent made of agents, each with a random generator spawned from the run's.

    One of them runs at a time, in a thread of its own, so a seed fixes what is proposed as it does
    for one agent. What a branch raises ends the run and comes out.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        if not agents:
            raise InvalidValueError("branches", 0, "at least 1")
        self.agents = tuple(agents)
        self.name = f"{agents[0].name} x{len(agents)}"

    def run(self, search: Search) -> None:
        """Spend the budget."""
        rngs = search.rng.spawn(len(self.agents))
        branches = [_Branch(*made, search) for made in zip(self.agents, rngs, strict=True)]
        try:
            for branch in branches:
                branch.go([])
            while asking := [branch for branch in branches if branch.asked is not None]:
                _milestone(search, asking)
        finally:
            for branch in branches:
                branch.end()


def _milestone(search: Search, branches: Sequence[_Branch]) -> None:
    """Measure what all branches ask for, then let each of them go on."""
    rows = zip_longest(*(branch.asked or () for branch in branches))
    merged = [program for row in rows for program in row if program is not None]
    answers = zip(merged, search.evaluate_many(merged), strict=False)
    found = {program.ir_key: evaluation for program, evaluation in answers}
    for branch in branches:
        branch.go([found.get(program.ir_key) for program in branch.asked or ()])


class _Ended(BaseException):
    """Ends the agent of a branch whose run is over; no agent can swallow it."""


@dataclass(frozen=True, slots=True)
class _Done:
    """What a branch hands over at its end."""

    error: BaseException | None = None


class _Branch:
    """One agent in a thread that runs only while `go` waits for it."""

    def __init__(self, agent: Agent, rng: np.random.Generator, search: Search) -> None:
        self.asked: Sequence[Program] | None = None
        """programs that it wants verdicts on; None before it began and after it ended"""
        self._agent = agent
        self._over = False
        self._given: SimpleQueue[Sequence[Evaluation | None]] = SimpleQueue()
        self._told: SimpleQueue[Sequence[Program] | _Done] = SimpleQueue()
        self._whole = search
        self._search = replace(
            search,
            rng=rng,
            evaluate=self._evaluate,
            evaluate_many=self._evaluate_many,
            out_of_time=self._out_of_time,
        )
        self._thread = threading.Thread(target=self._play, name=self._agent.name, daemon=True)

    def go(self, verdicts: Sequence[Evaluation | None]) -> None:
        """Let it run, with `verdicts` on what it asked for, until it asks again or ends."""
        if not self._thread.is_alive():
            self._thread.start()
        else:
            self._given.put(verdicts)
        self.asked = None
        told = self._told.get()
        if not isinstance(told, _Done):
            self.asked = told
        elif told.error is not None:
            raise told.error

    def end(self) -> None:
        """End it at its next question."""
        self._over = True
        if self._thread.is_alive():
            self._given.put(())
            self._thread.join()

    def _play(self) -> None:
        try:
            self._agent.run(self._search)
        except _Ended:
            self._told.put(_Done())
        except BaseException as error:  # noqa: BLE001 - raised again where the run waits
            self._told.put(_Done(error))
        else:
            self._told.put(_Done())

    def _evaluate(self, program: Program) -> Evaluation | None:
        return next(self._evaluate_many([program]), None)

    def _evaluate_many(self, programs: Sequence[Program]) -> Iterator[Evaluation]:
        if not programs:
            return
        self._require_going()
        self._told.put(tuple(programs))
        verdicts = self._given.get()
        self._require_going()
        for verdict in verdicts:
            if verdict is None:
                return
            yield verdict

    def _out_of_time(self) -> bool:
        self._require_going()
        return self._whole.out_of_time()

    def _require_going(self) -> None:
        if self._over:
            raise _Ended
