"""A session's process without a compiler, for tests of limits, crashes and cancelling."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from tirgym.serving.mcp_results import Closed
from tirgym.serving.mcp_wire import Answer, Opening

__all__ = ["HOST", "Host", "opening"]

HOST = "mcp_hosts:Host"


def opening(kernel: str = "matmul") -> Opening:
    """An opening that the fake does not look at, but for the kernel "refused"."""
    return Opening("", kernel, None, "both", 4, 60.0, "mcp", False, "llvm", None, 1, None)


class Host:
    """Answers its session's name, with what it was told before."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note, self.told = note, ""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def open(self, given: Opening, environment: Mapping[str, str]) -> Answer:
        """Load, or refuse to."""
        if given.kernel == "refused":
            return Answer(None, "no such kernel")
        self.told = given.session
        return Answer(Closed(session=given.session))

    def answer(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """What the call's name says."""
        try:
            getattr(self, name)(**arguments)
        except KeyboardInterrupt:
            return Answer(None, "cancelled")
        return Answer(Closed(session=self.told))

    def tell(self, text: str) -> None:
        """Remember something."""
        self.told = text

    def recall(self) -> None:
        """Nothing: the answer says it."""

    def sleep(self, seconds: float) -> None:
        """Take a while."""
        self.note("sleeping")
        time.sleep(seconds)

    def deaf(self, seconds: float) -> None:
        """Take a while, whoever interrupts."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.note("deaf")
        time.sleep(seconds)

    def crash(self) -> None:
        """Die as a compiler does."""
        os.kill(os.getpid(), signal.SIGSEGV)

    def mistake(self) -> None:
        """Raise what nobody expects."""
        raise LookupError("no such thing")
