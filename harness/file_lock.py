"""`FileLock`: an exclusive lock between processes; the kernel frees it when its holder dies."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import Self

__all__ = ["FileLock", "timing_lock_path"]


class FileLock:
    """Held inside a `with`; `waited_s` says how long it took to get. Made for timings: those of
    several processes on one machine must not overlap."""

    def __init__(self, path: str) -> None:
        self.path, self.waited_s = path, 0.0

    def __enter__(self) -> Self:
        started = time.perf_counter()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self.waited_s = time.perf_counter() - started
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def timing_lock_path() -> str:
    """The lock that all timings of this user on this machine hold."""
    return str(Path(tempfile.gettempdir()) / f"tirgym-timing-{os.getuid()}.lock")
