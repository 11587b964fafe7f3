"""The service over stdin and stdout: a message a line, an answer a line, in order.

A line is a `DecisionRequest`, a `Batch`, or `{"describe": true}`; the answer has the form that it has
over HTTP. Stdout belongs to the answers: whatever the agent prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from pydantic import BaseModel, ValidationError

from tirgym.serving.problems import NO_OBJECT, problem_of
from tirgym.serving.service import DecisionService
from tirgym.serving.wire import Batch, BatchReply, DecisionRequest, ErrorReply, Problem

__all__ = ["answer_line", "claim_stdout", "serve_stdio"]


def claim_stdout() -> BinaryIO:
    """The stdout of this process for answers alone: what others print goes to stderr from here on."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def serve_stdio(
    service: DecisionService, lines: BinaryIO, answers: BinaryIO, max_bytes: int
) -> None:
    """Answer each of `lines` until there are no more, or nobody reads the answers."""
    try:
        for line in _lines(lines, max_bytes):
            reply = _too_large(max_bytes) if line is None else answer_line(service, line)
            answers.write(reply + b"\n")
            answers.flush()
    except BrokenPipeError:
        return


def answer_line(service: DecisionService, line: bytes) -> bytes:
    """The answer to one line, without its end."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return _error(Problem(code="not_json", message=NO_OBJECT), None)
    if not isinstance(data, dict):
        return _error(Problem(code="not_json", message=NO_OBJECT), None)
    if data.get("describe") is True:
        return _bytes(service.describe())
    try:
        if "requests" in data:
            replies = service.answer(Batch.model_validate(data).requests)
            return _bytes(BatchReply(responses=tuple(reply.message for reply in replies)))
        (reply,) = service.answer([DecisionRequest.model_validate(data)])
        return _bytes(reply.message)
    except ValidationError as error:
        return _error(problem_of(error.errors()), data.get("request_id"))


def _lines(lines: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """Each line that is not empty; None for one that is longer than `max_bytes`."""
    while line := lines.readline(max_bytes + 1):
        if len(line) > max_bytes and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = lines.readline(max_bytes)
            yield None
        elif line.strip():
            yield line


def _bytes(message: BaseModel) -> bytes:
    return message.model_dump_json().encode()


def _error(problem: Problem, request_id: Any) -> bytes:
    """The reply in plain ASCII: what was asked may hold what UTF-8 cannot."""
    named = request_id if isinstance(request_id, str) else None
    return json.dumps(ErrorReply(error=problem).model_dump() | {"request_id": named}).encode()


def _too_large(max_bytes: int) -> bytes:
    return _error(
        Problem(code="too_large", message=f"the line is longer than {max_bytes} bytes"), None
    )
