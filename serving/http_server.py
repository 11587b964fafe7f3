"""Runs the service over HTTP: where it may listen, and how it ends."""

from __future__ import annotations

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from tirgym.errors import InvalidValueError
from tirgym.serving.app import MAX_BYTES, make_app
from tirgym.serving.service import DecisionService

__all__ = ["LOOPBACK_NAMES", "is_loopback", "listen", "make_server", "require_token", "serve_http"]

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_GRACE_S = 3
"""Seconds that requests under way have when the service ends."""
_CONNECTIONS = 256
"""At once; others are told to come back."""
_KEEP_ALIVE_S = 75
"""Longer than clients keep a connection that is idle, so that they are never the ones surprised."""


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Raise InvalidValueError for a host other than loopback without a token."""
    if token is None and not is_loopback(host):
        accepted = (
            "a loopback address, such as 127.0.0.1, as long as there is no token "
            "(--token-file, TIRGYM_SERVE_TOKEN)"
        )
        raise InvalidValueError("host", host, accepted)


def serve_http(
    service: DecisionService,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    max_bytes: int = MAX_BYTES,
    on_listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer until SIGTERM or Ctrl-C; `on_listening` gets the URL, with the port that 0 stands for.

    Raises InvalidValueError for a host other than loopback without a token, and where nobody can
    listen.
    """
    require_token(host, token)
    with listen(host, port) as listener:
        hosts = {*LOOPBACK_NAMES, host} if token is None else None
        server = make_server(make_app(service, token=token, hosts=hosts, max_bytes=max_bytes))
        bound = listener.getsockname()[1]
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        _run(server, listener)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises InvalidValueError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio turns Nagle's algorithm off, 40 ms an answer, for sockets that say they are TCP
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidValueError("host", host, f"one to listen on ({error})") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_CONNECTIONS)
    except OSError as error:
        listener.close()
        accepted = f"one that is free on {host} ({error.strerror}), or 0 for any"
        raise InvalidValueError("port", port, accepted) from None
    return listener


def make_server(app: FastAPI) -> uvicorn.Server:
    """A server that says nothing of what goes well."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            server_header=False,
        )
    )


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve; a signal ends it, and is used up by that, at whatever time it comes."""

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        server.run(sockets=[listener])
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
