"""Waiting for processes to come and to go."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

__all__ = ["gone", "wait_until"]


def wait_until(what: Callable[[], object], timeout_s: float = 30.0) -> bool:
    """Whether `what` comes true in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def gone(pid: int) -> bool:
    """Whether a process is over, buried or not."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
