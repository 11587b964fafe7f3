"""What clients write and read, over whatever it travels."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from tirgym.errors import AgentBusyError, AgentError, AgentTimeoutError
from tirgym.harness.decisions.point import DecisionPoint, Recommendation
from tirgym.serving.convert import request_of, to_recommendation
from tirgym.serving.problems import problem_of
from tirgym.serving.wire import Batch, BatchReply, DecisionResponse, ErrorReply

__all__ = ["ANSWER_BYTES", "question_bytes", "read_answers", "refusal"]

ANSWER_BYTES = 1 << 16
"""Of the answer to one question at most."""


def question_bytes(points: Sequence[DecisionPoint], ids: Sequence[str], budget_ms: float) -> bytes:
    """One question as a request, several as a batch; one line of JSON."""
    requests = tuple(request_of(p, i, budget_ms) for p, i in zip(points, ids, strict=True))
    message = requests[0] if len(requests) == 1 else Batch(requests=requests)
    return message.model_dump_json().encode()


def read_answers(answer: bytes, ids: Sequence[str]) -> list[Recommendation | AgentError]:
    """The answers to questions with those ids, in order, an error in the place of one that failed.

    Raises AgentError for what is no answer to them.
    """
    try:
        if len(ids) == 1:
            messages: Sequence[DecisionResponse | ErrorReply] = [
                DecisionResponse.model_validate_json(answer)
            ]
        else:
            messages = BatchReply.model_validate_json(answer).responses
    except ValidationError as error:
        problem = problem_of(error.errors()).message
        raise AgentError(f"the service's answer is none: {problem}") from None
    named = [message.request_id for message in messages]
    if named != list(ids):
        raise AgentError("the service answered other questions than it was asked")
    return [
        _error(message) if isinstance(message, ErrorReply) else to_recommendation(message)
        for message in messages
    ]


def refusal(where: str, answer: bytes) -> AgentError:
    """What the service says instead of answering."""
    try:
        reply = ErrorReply.model_validate_json(answer)
    except ValidationError:
        return AgentError(f"{where}, and no reason")
    return _error(reply, f"{where}: ")


_KINDS = {
    "agent_timeout": AgentTimeoutError,
    "budget_spent": AgentTimeoutError,
    "agent_busy": AgentBusyError,
}


def _error(reply: ErrorReply, where: str = "") -> AgentError:
    message = " ".join(reply.error.message.split())[:300]
    return _KINDS.get(reply.error.code, AgentError)(f"{where}{message}")
