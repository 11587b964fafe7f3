"""`RemoteAgent`: a decision agent that asks a service over HTTP.

agent = RemoteAgent("http://127.0.0.1:8077")
env.decide(compile_guard(agent))
"""

from __future__ import annotations

from collections.abc import Sequence

from tirgym import settings
from tirgym.errors import AgentError, AgentTimeoutError, InvalidValueError
from tirgym.harness.decisions.point import DecisionPoint, Recommendation
from tirgym.http_address import is_http_address
from tirgym.serving.exchange import ANSWER_BYTES, question_bytes, read_answers, refusal
from tirgym.serving.extra import require_client
from tirgym.serving.wire_agent import WireAgent

__all__ = ["RemoteAgent"]

_CONNECTIONS = 4
_IDLE_S = 30.0
"""Seconds that a connection is kept; servers keep it longer."""


class RemoteAgent(WireAgent):
    """Asks the service at `url` and waits `timeout_s` seconds a question, all told.

    `token` None sends TIRGYM_SERVE_TOKEN, if that is set. Raises AgentTimeoutError, and AgentError for
    whatever else keeps an answer away; a `Guard` counts them and takes the static choice. An option
    out of range is handed on, for the guard to count.
    """

    def __init__(self, url: str, timeout_s: float = 0.05, token: str | None = None) -> None:
        super().__init__()
        require_client("a remote agent")
        import httpcore

        from tirgym.serving.deadline import DeadlineBackend

        if not (is_http_address(url) and url.isascii() and " " not in url):
            raise InvalidValueError("url", url, "http://HOST:PORT or https://HOST:PORT")
        if not 0 < timeout_s < float("inf"):
            raise InvalidValueError("timeout_s", timeout_s, "a positive number of seconds")
        self.url, self.timeout_s = url.rstrip("/"), timeout_s
        token = settings.serve_token() if token is None else token
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidValueError("token", "•••", "plain characters in one line")
        self._headers: dict[bytes | str, bytes | str] = {
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = httpcore.ConnectionPool(
            max_connections=_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=DeadlineBackend(),
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _ask(self, points: Sequence[DecisionPoint]) -> list[Recommendation | AgentError]:
        """One message and its answers; raises AgentError if there are none at all."""
        ids = self._ids(len(points))
        seconds = self.timeout_s * len(points)
        path = "/v1/decision" if len(points) == 1 else "/v1/decisions"
        body = question_bytes(points, ids, 1000 * self.timeout_s)
        status, answer = self._post(path, body, seconds, ANSWER_BYTES * len(points))
        if status != 200:
            raise refusal(f"{self.url}: status {status}", answer)
        return read_answers(answer, ids)

    def _post(self, path: str, body: bytes, seconds: float, most: int) -> tuple[int, bytes]:
        """Status and body of the answer, of `most` bytes at most."""
        import httpcore

        from tirgym.serving.deadline import deadline

        parts, size = [], 0
        try:
            with (
                deadline(seconds),
                self._pool.stream(
                    "POST",
                    self.url + path,
                    headers=self._headers,
                    content=body,
                    extensions={"timeout": {"pool": seconds}},
                ) as response,
            ):
                for part in response.iter_stream():
                    size += len(part)
                    if size > most:
                        raise AgentError(f"{self.url} answers more than {most} bytes")
                    parts.append(part)
                return response.status, b"".join(parts)
        except httpcore.TimeoutException:
            late = f"{self.url} gave no answer within {1000 * seconds:g} ms"
            raise AgentTimeoutError(late) from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.UnsupportedProtocol,
        ) as error:
            reason = str(error) or type(error).__name__
            raise AgentError(f"{self.url} cannot be asked ({reason})") from None
