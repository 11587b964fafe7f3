"""The agent's side of a run: a process that has the agent, and no evaluator, budget or clock.

What the agent asks to have measured crosses to the run as recipes (JSON, never pickles), so that an
agent that patches its own process changes neither what is counted nor what is measured. Started by
`tirgym.benchmarks.leaderboard.apart`.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tirgym.benchmarks.leaderboard.recipes import recipe_of, schedule_text
from tirgym.harness.agent import Agent, Budget, Candidate, Search
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.fork_server import die_with_parent
from tirgym.harness.program import Program
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import load_workload

__all__ = ["Order", "Reply", "main"]


@dataclass(frozen=True, slots=True)
class Order:
    """What to play. Pickled by the run, which the agent's process trusts."""

    agent: str
    """name in the agent table, "metaschedule", or package.module:Class"""
    options: Mapping[str, Any]
    workload: str
    target: Target
    seed: int
    budget: Budget
    memory_bytes: int
    """address space of the process"""
    file_bytes: int
    """largest file that it may write"""
    keep: str = ""
    """folder for what an agent keeps of its run, such as a transcript; "" for none"""
    stem: str = ""
    """name of this run within it"""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one question; `evaluation` None once the budget is spent."""

    evaluation: Evaluation | None
    remaining: int
    out_of_time: bool


class _Line:
    """To the run: questions as JSON lines, replies as pickles with their length in front."""

    def __init__(self, questions: BinaryIO, replies: BinaryIO) -> None:
        self._questions, self._replies = questions, replies

    def ask(self, **question: Any) -> Any:
        """The reply to a question."""
        self.tell(**question)
        return self.hear()

    def tell(self, **message: Any) -> None:
        """A message without a reply."""
        self._questions.write(json.dumps(message).encode() + b"\n")
        self._questions.flush()

    def hear(self) -> Any:
        """The next thing that the run says."""
        (length,) = struct.unpack("<I", self._replies.read(4))
        return pickle.loads(self._replies.read(length))


class _Remote:
    """The functions of a `Search`, answered by the run."""

    def __init__(self, line: _Line, start: Program, agent: Agent, first: Reply) -> None:
        self._line, self._start, self._agent, self._last = line, start, agent, first
        known = [] if first.evaluation is None else [Candidate(start, first.evaluation)]
        self.history: list[Candidate] = known

    def evaluate(self, program: Program) -> Evaluation | None:
        return next(self.evaluate_many([program]), None)

    def evaluate_many(self, programs: Sequence[Program]) -> Iterator[Evaluation]:
        self._line.tell(op="batch", programs=[self._recipe(program) for program in programs])
        for program in programs:
            self._last = self._line.ask(op="next")
            if self._last.evaluation is None:
                return
            self.history.append(Candidate(program, self._last.evaluation))
            yield self._last.evaluation

    def remaining_trials(self) -> int:
        return self._last.remaining

    def out_of_time(self) -> bool:
        self._last = self._line.ask(op="state")
        return self._last.out_of_time

    def _recipe(self, program: Program) -> dict[str, Any]:
        schedules = getattr(self._agent, "schedules", {})
        trace = schedules.get(program.ir_key)
        texts = {} if trace is None else {program.ir_key: schedule_text(trace)}
        recipe = recipe_of(program, self._start, texts)
        return {**asdict(recipe), "ir_key": program.ir_key}


def main() -> None:
    """Serve one order, then end; whatever the agent raises ends the process."""
    die_with_parent()  # a killed run leaves nothing behind
    line = _Line(os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb"))
    os.dup2(2, 1)  # an agent that prints does not speak to the run
    order: Order = line.hear()
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_bytes, order.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (order.file_bytes, order.file_bytes))
    from tirgym.benchmarks.leaderboard.entrants import agent_of, seen_by

    agent, vocabulary = agent_of(order.agent, order.options, order.target.backend)
    start = backend(order.target.backend).start(load_workload(order.workload), order.target)
    prepare = getattr(agent, "prepare", None)
    if callable(prepare):
        prepare(start, Path(order.keep) if order.keep else None, order.stem)
    line.tell(op="ready", saw=seen_by(agent))
    remote = _Remote(line, start, agent, line.hear())
    search = Search(
        start=start,
        vocabulary=vocabulary or default_vocabulary(order.target.backend),
        cost=StaticCostModel(),
        rng=np.random.default_rng(order.seed),
        budget=order.budget,
        evaluate=remote.evaluate,
        evaluate_many=remote.evaluate_many,
        remaining_trials=remote.remaining_trials,
        out_of_time=remote.out_of_time,
        history=remote.history,
    )
    agent.run(search)
    failure = str(getattr(agent, "failure", ""))
    line.tell(op="end", tokens=getattr(agent, "tokens", None), message=failure)
