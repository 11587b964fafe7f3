"""`AgentHost`: one agent in a thread of its own, asked by whoever serves; survives what the agent does.

Agents are no more thread-safe than they want to be, so questions are put one after the other. Nobody
waits longer than the limit. A thread cannot be ended from outside: a call that goes on for ten times
its limit is left behind, and a new agent in a new thread takes the place of the old one.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from tirgym.errors import AgentBusyError, AgentTimeoutError, InvalidValueError
from tirgym.harness.decisions.agents import DecisionAgent
from tirgym.harness.decisions.guard import ask
from tirgym.harness.decisions.point import DecisionPoint, Recommendation

__all__ = ["AgentHost"]

_log = logging.getLogger(__name__)

HANGS = 10.0
"""Limits after which a call counts as hanging."""
QUEUED = 256
"""Messages that wait at most."""


@dataclass(slots=True)
class _Job:
    """A message in the queue."""

    points: Sequence[DecisionPoint]
    until: float
    """time.monotonic() after which nobody waits any more"""
    limit_s: float
    answers: Future[list[object]] = field(default_factory=Future)


class _Late:
    """An agent that is made when it is asked first."""

    def __init__(self, make: Callable[[], DecisionAgent]) -> None:
        self._make = make
        self._agent: DecisionAgent | None = None

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The agent's answer."""
        if self._agent is None:
            self._agent = self._make()
        return self._agent.decide(point)


class AgentHost:
    """Asks the agent that `make` makes, at most `limit_s` seconds a question.

    The first is made at once, so that its errors are seen. At most `spares` times a new one takes
    the place of one that hangs; after that questions are refused until it goes on.
    """

    def __init__(
        self,
        make: Callable[[], DecisionAgent],
        name: str,
        limit_s: float = 1.0,
        spares: int = 4,
    ) -> None:
        if not 0 < limit_s < float("inf"):
            raise InvalidValueError("limit_s", limit_s, "a positive number of seconds")
        self.name, self.limit_s, self.spares = name, limit_s, spares
        self.replaced = 0
        """agents that were given up"""
        self._make = make
        self._jobs: queue.Queue[_Job | None] = queue.Queue(QUEUED)
        self._lock = threading.Lock()
        self._closed = False
        self._start(make())

    # -- asking -----------------------------------------------------------------------------

    def submit(
        self, points: Sequence[DecisionPoint], limit_s: float | None = None
    ) -> Future[list[object]]:
        """What the agent will answer to each point, or what it raised; wait for it `time_for` long.

        A result after the limit is lost, and a message that is not begun by then is dropped. Raises
        AgentBusyError if too many wait, or the agent hangs and there is no spare.
        """
        limit = self.time_for(len(points), limit_s)
        self._replace_hanging()
        job = _Job(points, time.monotonic() + limit, limit)
        if self.hangs:
            raise AgentBusyError("the agent hangs; ask again once it goes on")
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise AgentBusyError(f"{QUEUED} messages wait for the agent already") from None
        return job.answers

    def answers(
        self, points: Sequence[DecisionPoint], limit_s: float | None = None
    ) -> list[object]:
        """`submit`, and wait; an AgentError for each point in the place of what did not come."""
        try:
            future = self.submit(points, limit_s)
        except AgentBusyError as error:
            return [error] * len(points)
        try:
            return future.result(self.time_for(len(points), limit_s))
        except TimeoutError:
            future.cancel()
            return [self.too_late(len(points), limit_s)] * len(points)

    def time_for(self, number: int, limit_s: float | None = None) -> float:
        """Seconds for so many questions: the limit of the host, or a smaller one, for each."""
        return number * min(self.limit_s, limit_s or self.limit_s)

    def too_late(self, number: int, limit_s: float | None = None) -> AgentTimeoutError:
        """What is said when the time is over."""
        return AgentTimeoutError(
            f"the agent gave no answer within {1000 * self.time_for(number, limit_s):g} ms"
        )

    @property
    def hangs(self) -> bool:
        """Whether the agent has not come back from a call for long."""
        began = self._worker.began
        return began is not None and time.monotonic() > began[0] + HANGS * began[1]

    @property
    def waiting(self) -> int:
        """Messages in the queue."""
        return self._jobs.qsize()

    def close(self) -> None:
        """Ask no more; a call that is under way ends by itself, or with the process."""
        self._closed = True
        with self._lock:
            self._worker.retired = True
        with suppress(queue.Full):
            self._jobs.put_nowait(None)

    # -- threads ----------------------------------------------------------------------------

    def _start(self, agent: DecisionAgent) -> None:
        self._worker = _Worker(agent, self._jobs)
        self._worker.start()

    def _replace_hanging(self) -> None:
        """Leave an agent behind that hangs."""
        with self._lock:
            if self._closed or not self.hangs or self.replaced >= self.spares:
                return
            self._worker.retired = True
            self.replaced += 1
            _log.warning(
                "agent %s hangs: a new one takes its place (%d of %d)",
                self.name,
                self.replaced,
                self.spares,
            )
            self._start(_Late(self._make))


class _Worker(threading.Thread):
    """Asks one agent until it is retired."""

    def __init__(self, agent: DecisionAgent, jobs: queue.Queue[_Job | None]) -> None:
        super().__init__(daemon=True, name="tirgym-agent")
        self.retired = False
        self.began: tuple[float, float] | None = None
        """time.monotonic() at which the present call began, and its limit in seconds"""
        self._agent, self._jobs = agent, jobs

    def run(self) -> None:
        """Take messages and answer them."""
        while not self.retired:
            job = self._jobs.get()
            if job is None:
                return
            if time.monotonic() > job.until or not job.answers.set_running_or_notify_cancel():
                continue
            self.began = (time.monotonic(), job.limit_s)
            answers = ask(self._agent, job.points)
            self.began = None
            job.answers.set_result(answers)
