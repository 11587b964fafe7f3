"""`Channel`: framed pickled messages between a process and its worker, with a deadline on reading."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from typing import Any

from tirgym.errors import WorkerDiedError

__all__ = ["Channel", "DeadlineError"]

_HEADER = struct.Struct("<Q")
_CHUNK = 1 << 20


class DeadlineError(TimeoutError):
    """No whole message came in time."""


class Channel:
    """One end of a socket pair. Not thread-safe; each end belongs to one thread at a time.

    Every message is an 8-byte little-endian length and that many bytes of pickle. Nothing else may
    write to the socket: workers send their standard streams elsewhere.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(True)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        """Write one message; raises WorkerDiedError if the other end is gone."""
        data = message if isinstance(message, bytes) else pickle.dumps(message, 5)
        try:
            self._sock.sendall(_HEADER.pack(len(data)))
            self._sock.sendall(data)
        except OSError as error:
            raise WorkerDiedError(f"the other process is gone ({error})") from None

    def receive(self, timeout_s: float | None = None) -> Any:
        """The next message; raises DeadlineError or, at end of file, WorkerDiedError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (size,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return pickle.loads(self._read(size, deadline))

    def _read(self, size: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while size:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._sock], [], [], left)[0]:
                    raise DeadlineError("no answer in time")
            try:
                part = self._sock.recv(min(size, _CHUNK))
            except OSError as error:
                raise WorkerDiedError(f"the other process is gone ({error})") from None
            if not part:
                raise WorkerDiedError("the other process is gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close this end."""
        self._sock.close()
