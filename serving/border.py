"""`Border`: what a request has to pass before the service sees it: host, token, size, time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from tirgym.serving.tally import Tally
from tirgym.serving.wire import ErrorReply, Problem

__all__ = ["OPEN_PATHS", "Border"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health", "/openapi.json", "/docs")
"""Answered without a token: they say nothing about anybody's program."""

BODY_S = 10.0
"""Seconds that a request may take to arrive."""
_DRAINED = 16
"""Limits of bytes that are read of a request that is too large, so that its sender sees the answer."""


class Border:
    """ASGI middleware.

    `token` None asks for none; `hosts` are the names under which the service may be called, None any:
    a page in a browser that reaches a loopback address under a name of its own is turned away.
    """

    def __init__(
        self,
        app: App,
        *,
        tally: Tally,
        max_bytes: int,
        token: str | None = None,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app, self._tally, self._max_bytes = app, tally, max_bytes
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = hosts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass the request on with its whole body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._tally.responses[message["status"]] += 1
            await send(message)

        refusal = self._refusal(scope)
        body = b""
        if refusal is None:
            try:
                body = await asyncio.wait_for(self._body(scope, receive), BODY_S)
            except TimeoutError:
                refusal = 408, "too_slow", f"the request took longer than {BODY_S:g} s to arrive"
            except ConnectionError:
                return
            except ValueError as error:
                refusal = 413, "too_large", str(error)
        if refusal is not None:
            await _refuse(counted, *refusal)
            return
        sent = False

        async def whole() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, counted)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str, str] | None:
        """Status, code and message, from the head of the request alone."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._hosts is not None and name.strip("[]") not in self._hosts:
            accepted = ", ".join(sorted(self._hosts))
            return 421, "wrong_host", f"not served under this name; expected one of {accepted}"
        if self._token is not None and scope["path"] not in OPEN_PATHS:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                return 401, "no_token", "expected the header Authorization: Bearer TOKEN"
        return None

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The body; raises ValueError if it is too large, ConnectionError if it never ends."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ConnectionError
            size += len(message.get("body", b""))
            if size <= self._max_bytes:
                parts.append(message.get("body", b""))
            if not message.get("more_body") or size > _DRAINED * self._max_bytes:
                break
        if size > self._max_bytes:
            raise ValueError(f"the request is larger than {self._max_bytes} bytes")
        return b"".join(parts)


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    reply = ErrorReply(error=Problem(code=code, message=message)).model_dump_json().encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(reply)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reply})
