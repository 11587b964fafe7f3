"""Decision services for tests: in this process, in another, and some that misbehave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore
from decision_points import POINT

from tirgym.harness.decisions import CallbackAgent, DecisionAgent, DecisionPoint
from tirgym.serving.app import make_app
from tirgym.serving.host import AgentHost
from tirgym.serving.http_server import listen, make_server
from tirgym.serving.service import DecisionService

__all__ = ["POINT", "QUESTION", "Mute", "Served", "chooser", "rough_server", "served"]

QUESTION: Mapping[str, Any] = {
    "request_id": "q1",
    "decision_point": "unroll",
    "code_context": {
        "ir_snippet": "loop 0: i of 8",
        "hardware_target": "x86-64",
        "candidate_options": [
            {"option": "as it is", "factor": 1, "static_cost_estimate": 3.5},
            {"option": "unroll", "factor": 4},
        ],
    },
}
"""The least that can be asked."""


def chooser(option: int) -> Callable[[], DecisionAgent]:
    """Makes agents that always take the same option."""
    return lambda: CallbackAgent(lambda point: option)


class Mute:
    """Does not answer before `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def decide(self, point: DecisionPoint) -> Any:
        """None, in the end."""
        self.release.wait(60)


@dataclass
class Served:
    """A service that listens in this process."""

    url: str
    service: DecisionService

    def post(
        self,
        path: str,
        body: bytes,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> httpcore.Response:
        """The answer to one POST."""
        sent = [("Content-Type", content_type), *(headers or {}).items()]
        return httpcore.request("POST", self.url + path, content=body, headers=sent)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpcore.Response:
        """The answer to one GET."""
        return httpcore.request("GET", self.url + path, headers=[*(headers or {}).items()])


@contextmanager
def served(
    make: Callable[[], DecisionAgent], limit_s: float = 30.0, spares: int = 4, **options: Any
) -> Iterator[Served]:
    """The agent that `make` makes, over HTTP in a thread; `options` are those of `make_app`."""
    service = DecisionService(AgentHost(make, "test", limit_s, spares))
    server = make_server(make_app(service, **options))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", service)
        finally:
            server.should_exit = True
            thread.join(20)
            service.host.close()
    assert not thread.is_alive()


@contextmanager
def rough_server(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server on a bare socket: `behave` gets each connection, and an event that says it is over."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def run(connection: socket.socket) -> None:
        with connection:
            try:
                behave(connection, over)
            except OSError:
                return  # the client has gone

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=run, args=(connection,), daemon=True))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join(20)
