"""`AgentApart`: an agent that plays from a process of its own; the run counts and measures here.

The run's side: it makes each program again from its recipe, hands it to the run, and sends the verdict
back. The process is ended when it exceeds its time, and can exceed nothing else.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tirgym.benchmarks.leaderboard.agent_process import Order, Reply
from tirgym.benchmarks.leaderboard.recipes import ProgramMaker
from tirgym.benchmarks.leaderboard.record import Kind, Outcome, Recipe, RecipeKind, one_line
from tirgym.errors import EvaluationError, IllegalTransformError, UsageError
from tirgym.harness.agent import Search
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.own_process import THREAD_VARIABLES
from tirgym.harness.program import Program
from tirgym.kernels_suite.registry import load_workload

__all__ = ["AgentApart"]

START_S = 120.0
"""To import and make the agent."""
LONGEST = 64 << 20
"""Bytes of one question."""
GRACE_S = 5.0
"""For a process that closed its pipe to end by itself, so that its exit code is known."""
_CODE = """
from tirgym.benchmarks.leaderboard.agent_process import main

main()
"""


class _Failed(Exception):
    """The agent's process ended, hung, or spoke nonsense."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        self.outcome, self.message = outcome, one_line(message)
        super().__init__(self.message)


class AgentApart:
    """Plays `order` from another process; used as a context manager, then given to a `SearchRun`.

    After the run, `outcome` and `message` say how the process ended, or what the agent itself says
    went wrong; a run whose agent fails keeps
    what was found. `limit_s` are the wall seconds that the search may take.
    """

    def __init__(self, order: Order, kind: Kind, limit_s: float) -> None:
        self.order, self.kind, self.limit_s = order, kind, limit_s
        self.outcome, self.message = Outcome.FINISHED, ""
        self.saw: object = None
        """what the agent declares, as JSON values"""
        self.tokens: int | None = None
        self.schedules: dict[str, str] = {}
        """by IR key, TVM's own instructions of the programs that a peer asked for"""
        self.start_s = 0.0
        self._buffer = b""

    @property
    def name(self) -> str:
        """As ordered."""
        return self.order.agent

    def __enter__(self) -> Self:
        """Start the process and wait until the agent is ready; a failure is kept for the run."""
        began = time.monotonic()
        self._home = tempfile.TemporaryDirectory(prefix="tirgym-agent-")
        self._words = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=self._environment(),
            start_new_session=True,
        )
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        self._deadline = began + START_S
        self._failure: _Failed | None = None
        try:
            self._say(self.order)
            self.saw = self._hear().get("saw")
        except _Failed as failure:
            self._failure = failure
        self.start_s = time.monotonic() - began
        return self

    def _environment(self) -> dict[str, str]:
        """One thread for every library, and an empty data folder: the store starts empty."""
        threads = dict.fromkeys(THREAD_VARIABLES, "1")
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        return {**os.environ, **threads, "PYTHONPATH": paths, "TIRGYM_HOME": self._home.name}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()
        self._words.close()
        self._home.cleanup()

    def run(self, search: Search) -> None:
        """Answer the agent's questions until it ends; raises nothing for what the agent does."""
        self._deadline = time.monotonic() + self.limit_s
        try:
            if self._failure is not None:
                raise self._failure
            self._serve(search)
        except _Failed as failure:
            self.outcome, self.message = failure.outcome, failure.message

    def _serve(self, search: Search) -> None:
        workload = load_workload(self.order.workload)
        maker = ProgramMaker(workload, self.order.target)
        answers: Iterator[Evaluation] = iter(())

        def reply(evaluation: Evaluation | None) -> None:
            self._say(Reply(evaluation, search.remaining_trials(), search.out_of_time()))

        reply(search.history[0].evaluation)
        while (question := self._hear()).get("op") != "end":
            operation = question.get("op")
            if operation == "batch":
                programs = [self._program(data, maker) for data in _list(question, "programs")]
                answers = search.evaluate_many(programs)
            elif operation == "next":
                reply(next(answers, None))
            else:
                reply(None)
        tokens, message = question.get("tokens"), question.get("message")
        self.tokens = tokens if type(tokens) is int and 0 <= tokens < 2**63 else None
        self.message = one_line(message) if isinstance(message, str) else ""

    def _program(self, data: object, maker: ProgramMaker) -> Program:
        """The program of a question; its IR must be the one that the agent means."""
        self._left_s()
        if not isinstance(data, dict):
            raise _Failed(Outcome.CRASH, "asked for a program that is no JSON object")
        steps, schedule = tuple(_list(data, "steps")), data.get("schedule")
        if not all(isinstance(text, str) for text in (*steps, schedule)):
            raise _Failed(Outcome.CRASH, "asked for a program whose steps or schedule are no text")
        try:
            recipe = Recipe(RecipeKind(str(data.get("kind"))), steps, str(schedule))
            program = maker.make(recipe, self.kind)
        except (UsageError, IllegalTransformError, ValueError) as error:
            raise _Failed(Outcome.CRASH, f"asked for no program: {error}") from None
        if program.ir_key != data.get("ir_key"):
            raise _Failed(Outcome.CRASH, "asked for another program than its steps make")
        if recipe.kind is RecipeKind.SCHEDULE:
            self.schedules[program.ir_key] = recipe.schedule
        return program

    # -- the pipe ---------------------------------------------------------------------------

    def _say(self, message: object) -> None:
        """Write a reply; raises _Failed when the agent does not read it in time."""
        data = pickle.dumps(message)
        pipe = self._process.stdin
        if pipe is None:
            raise EvaluationError("the agent's process has no pipe")
        rest = memoryview(struct.pack("<I", len(data)) + data)
        while rest:
            if not select.select([], [pipe], [], self._left_s())[1]:
                continue
            try:
                rest = rest[os.write(pipe.fileno(), rest) :]
            except BlockingIOError:  # less room than a whole page: wait for more
                time.sleep(0.001)
            except BrokenPipeError:
                raise self._ended() from None

    def _hear(self) -> dict[str, Any]:
        """The next question; raises _Failed when there is none in time."""
        pipe = self._process.stdout
        if pipe is None:
            raise EvaluationError("the agent's process has no pipe")
        while b"\n" not in self._buffer:
            if not select.select([pipe], [], [], self._left_s())[0]:
                continue
            more = os.read(pipe.fileno(), 1 << 16)
            if not more:
                raise self._ended()
            self._buffer += more
            if len(self._buffer) > LONGEST:
                raise _Failed(Outcome.CRASH, f"a question of more than {LONGEST >> 20} MiB")
        text, _, self._buffer = self._buffer.partition(b"\n")
        try:
            question = json.loads(text)
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict):
            raise _Failed(Outcome.CRASH, "a question that is no JSON object")
        return question

    def _left_s(self) -> float:
        """Seconds to the time limit; raises _Failed when there are none."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise _Failed(Outcome.TIMEOUT, "the agent was killed at its time limit")
        return left_s

    def _kill(self) -> None:
        """End the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ended(self) -> _Failed:
        """The process closed its pipe; with its last words. Whatever is left of it is killed."""
        try:
            how = f"ended with {self._process.wait(GRACE_S)}"
        except subprocess.TimeoutExpired:
            how = "closed its pipe and went on"
        self._kill()
        self._process.wait()
        self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, self._words.tell() - 2000))
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return _Failed(Outcome.CRASH, f"the agent's process {how}: {(lines or ['no message'])[-1]}")


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    """A field of a question that must be a list."""
    value = data.get(name)
    if not isinstance(value, list):
        raise _Failed(Outcome.CRASH, f"a question whose {name} are no list")
    return value
