"""`deadline`: an end for everything that HTTP connections do, in total.

The timeouts of httpcore are for one read each, so that a peer that drips bytes is never late. Here
each connect, read and write may take what is left until the deadline of the thread that asks.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

__all__ = ["DeadlineBackend", "deadline"]

_PIECE = 16384
"""Bytes that are written at once."""
_thread = threading.local()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Whatever this thread does over a `DeadlineBackend` meanwhile ends after `seconds`."""
    _thread.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _thread.until = None


def _left(late: type[Exception]) -> float | None:
    """Seconds that are left, None without a deadline; raises `late` if there are none."""
    until: float | None = getattr(_thread, "until", None)
    if until is None:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise late("the deadline is over")
    return left


class _DeadlineStream(httpcore.NetworkStream):
    """A connection."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._stream.write(piece, _left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class DeadlineBackend(httpcore.NetworkBackend):
    """Makes connections for `httpcore.ConnectionPool(network_backend=…)`."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(httpcore.ConnectTimeout)
        return _DeadlineStream(
            self._backend.connect_tcp(host, port, left, local_address, socket_options)
        )
