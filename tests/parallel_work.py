"""Work for processes side by side, in a module that they can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tirgym.errors import InvalidValueError

__all__ = ["die", "double", "linger", "process_of", "second_lingers", "shrug"]


def process_of(item: object) -> int:
    """Who does it."""
    return os.getpid()


def double(item: int) -> int:
    """Twice as much."""
    if item < 0:
        raise InvalidValueError("item", item, "0 or more")
    return 2 * item


def linger(path: Path) -> None:
    """Say who it is there, and do not end."""
    path.write_text(str(os.getpid()))
    time.sleep(600.0)


def second_lingers(path: Path) -> None:
    """`linger` where the path is called so."""
    if path.name == "second":
        linger(path)


def die(item: object) -> None:
    """End at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def shrug(item: object) -> bool:
    """Whether Ctrl-C leaves this process alone."""
    os.kill(os.getpid(), signal.SIGINT)
    return True
