"""`DecisionService`: answers messages, over whatever they come; every transport shares it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from tirgym.errors import AgentBusyError, AgentError, AgentTimeoutError
from tirgym.serving.convert import response_of, to_point
from tirgym.serving.host import AgentHost
from tirgym.serving.tally import Tally
from tirgym.serving.wire import (
    MAX_BATCH,
    PROTOCOLS,
    DecisionRequest,
    DecisionResponse,
    Description,
    ErrorReply,
    Problem,
)

__all__ = ["DecisionService", "Reply"]

_log = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What is sent back for one question."""

    status: int
    """of HTTP"""
    message: DecisionResponse | ErrorReply


class _Failure(NamedTuple):
    """A way to fail."""

    outcome: str
    code: str
    status: int


_FAILURES: Sequence[tuple[type[Exception], _Failure]] = (
    (AgentBusyError, _Failure("busy", "agent_busy", 503)),
    (AgentTimeoutError, _Failure("timeout", "agent_timeout", 504)),
    (Exception, _Failure("raised", "agent_failed", 500)),
)
"""By what came instead of an answer; the first that fits."""
_INVALID = _Failure("invalid", "agent_answer_invalid", 502)
_IMPATIENT = _Failure("timeout", "budget_spent", 408)
"""Late for whoever asks, though not by the limit of the service."""


class DecisionService:
    """Puts questions to the agent of `host`, and keeps the tally."""

    def __init__(self, host: AgentHost) -> None:
        self.host, self.tally = host, Tally()

    def describe(self) -> Description:
        """Who answers, and on what terms."""
        return Description(
            protocols=PROTOCOLS,
            agent=self.host.name,
            version=_version(),
            max_batch=MAX_BATCH,
            limit_ms=1000 * self.host.limit_s,
        )

    def answer(self, requests: Sequence[DecisionRequest]) -> list[Reply]:
        """A reply to each request, in order; never raises for what the agent does."""
        began = time.monotonic()
        points = [to_point(request) for request in requests]
        answers = self.host.answers(points, self._budget_s(requests))
        return self._replies(requests, answers, began)

    async def answer_async(self, requests: Sequence[DecisionRequest]) -> list[Reply]:
        """`answer` without holding up the event loop."""
        began = time.monotonic()
        points, limit_s = [to_point(request) for request in requests], self._budget_s(requests)
        answers: list[object]
        try:
            future = asyncio.wrap_future(self.host.submit(points, limit_s))
            answers = await asyncio.wait_for(future, self.host.time_for(len(points), limit_s))
        except AgentBusyError as error:
            answers = [error] * len(points)
        except TimeoutError:
            answers = [self.host.too_late(len(points), limit_s)] * len(points)
        return self._replies(requests, answers, began)

    def _replies(
        self, requests: Sequence[DecisionRequest], answers: Sequence[object], began: float
    ) -> list[Reply]:
        replies = [self._reply(*pair) for pair in zip(requests, answers, strict=True)]
        self.tally.add_message(time.monotonic() - began)
        return replies

    def _budget_s(self, requests: Sequence[DecisionRequest]) -> float | None:
        """Seconds that whoever asks has for a decision; None if they have the limit of the service."""
        budgets = [request.budget_ms for request in requests]
        most = max(self.host.limit_s * 1000 if ms is None else ms for ms in budgets) / 1000
        return most if most < self.host.limit_s else None

    def _reply(self, request: DecisionRequest, answer: object) -> Reply:
        """The answer, or why there is none; counted, and logged if there is none."""
        try:
            if isinstance(answer, Exception):
                failure = next(f for kind, f in _FAILURES if isinstance(answer, kind))
                if failure.outcome == "timeout" and self._budget_s([request]) is not None:
                    failure = _IMPATIENT
                reason = str(answer) if isinstance(answer, AgentError) else _said(answer)
            else:
                response = response_of(answer, request)
                self.tally.decisions["answered"] += 1
                return Reply(200, response)
        except AgentError as error:
            failure, reason = _INVALID, str(error)
        self.tally.decisions[failure.outcome] += 1
        _log.warning("%s: %s: %s", request.decision_point.key, failure.code, reason)
        problem = Problem(code=failure.code, message=reason)
        return Reply(failure.status, ErrorReply(request_id=request.request_id, error=problem))


def _said(error: Exception) -> str:
    """One line of what the agent raised."""
    line = f"the agent raised {type(error).__name__}: {error}".splitlines()[0]
    return line.encode("utf-8", "replace").decode("utf-8")[:300]


def _version() -> str:
    try:
        return version("tirgym")
    except PackageNotFoundError:
        return "unknown"
