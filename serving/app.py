"""The service over HTTP: a FastAPI application.

POST /v1/decision    one question
POST /v1/decisions   several; each has an answer or an error of its own
GET  /v1             who answers, and on what terms
GET  /health         200, or 503 while the agent hangs
GET  /metrics        text format of Prometheus
GET  /docs, /openapi.json
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from tirgym.serving.border import Border
from tirgym.serving.metrics import CONTENT_TYPE, metrics_text
from tirgym.serving.problems import NO_OBJECT, problem_of
from tirgym.serving.service import DecisionService
from tirgym.serving.wire import (
    Batch,
    BatchReply,
    DecisionRequest,
    DecisionResponse,
    Description,
    ErrorReply,
    Problem,
)

__all__ = ["MAX_BYTES", "Health", "make_app"]

MAX_BYTES = 1 << 20
"""Of a request."""


class Health(BaseModel):
    """Whether questions are answered."""

    status: str
    """"ok" or "hangs" """
    agent: str


_REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorReply, "description": text}
    for code, text in (
        (400, "The body cannot be read"),
        (401, "No token, or a wrong one"),
        (408, "The request was too slow to arrive, or its `budget_ms` is spent"),
        (413, "The request is too large"),
        (421, "Called under a wrong host name"),
        (422, "A field is missing or wrong; `error.field` names it"),
    )
}
_FAILED: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorReply, "description": text}
    for code, text in (
        (500, "The agent raised"),
        (502, "The agent's answer is none"),
        (503, "The agent hangs, or too many questions wait"),
        (504, "The agent gave no answer in time"),
    )
}


def make_app(
    service: DecisionService,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> FastAPI:
    """The application; `token` and `hosts` are those of `Border`."""
    app = FastAPI(
        title="tirgym decision service",
        version=service.describe().version,
        description="Answers decision points of a compiler.",
        redoc_url=None,
    )
    app.add_middleware(
        Border,
        tally=service.tally,
        max_bytes=max_bytes,
        token=token,
        hosts=hosts,
    )
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_refused)

    @app.post("/v1/decision", responses={**_REFUSED, **_FAILED}, response_model=DecisionResponse)
    async def decision(request: DecisionRequest) -> Response:
        """The option to take."""
        (reply,) = await service.answer_async([request])
        return _json(reply.message, reply.status)

    @app.post("/v1/decisions", responses=_REFUSED, response_model=BatchReply)
    async def decisions(batch: Batch) -> Response:
        """An answer to each question in order, or the error in its place."""
        replies = await service.answer_async(batch.requests)
        return _json(BatchReply(responses=tuple(reply.message for reply in replies)))

    @app.get("/v1", responses=_REFUSED)
    async def describe() -> Description:
        """Who answers, and on what terms."""
        return service.describe()

    @app.get("/health", responses={503: {"model": Health, "description": "The agent hangs"}})
    async def health() -> Health:
        """Whether questions are answered."""
        state = Health(status="hangs" if service.host.hangs else "ok", agent=service.host.name)
        return _json(state, 503 if service.host.hangs else 200)  # type: ignore[return-value]

    @app.get("/metrics", responses=_REFUSED, response_class=Response)
    async def metrics() -> Response:
        """Figures in the text format of Prometheus."""
        return Response(metrics_text(service), media_type=CONTENT_TYPE)

    return app


def _json(message: BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump_json(), status, media_type="application/json")


async def _on_invalid(request: Request, error: Exception) -> Response:
    """A request that is no valid message."""
    assert isinstance(error, RequestValidationError)  # registered for no other
    body = error.body if isinstance(error.body, dict) else {}
    return _error(422, problem_of(error.errors()), body.get("request_id"))


async def _on_refused(request: Request, error: Exception) -> Response:
    """A path, method or body that cannot be."""
    assert isinstance(error, HTTPException)  # registered for no other
    code, message = _REFUSALS.get(error.status_code, ("bad_request", str(error.detail)))
    return _error(error.status_code, Problem(code=code, message=message), None)


_REFUSALS = {
    400: ("not_json", NO_OBJECT),
    404: (
        "not_found",
        "expected POST /v1/decision or /v1/decisions, or GET /v1, /health, /metrics or /docs",
    ),
    405: ("wrong_method", "decisions are asked with POST, everything else with GET"),
}


def _error(status: int, problem: Problem, request_id: object) -> Response:
    """The reply in plain ASCII: what was asked may hold what UTF-8 cannot."""
    named = request_id if isinstance(request_id, str) else None
    reply = ErrorReply(request_id=None, error=problem).model_dump() | {"request_id": named}
    return Response(json.dumps(reply), status, media_type="application/json")
