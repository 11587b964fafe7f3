"""`Host`: the process of one session. What crashes, hangs or prints there harms no other session.

It is a worker (`tirgym.harness.worker`) of the server, and has workers of its own for what the
evaluator builds and runs; all of them end with the server, however that one ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from tirgym.errors import TirgymError
from tirgym.serving.mcp_results import Exported, Result
from tirgym.serving.mcp_session import KernelSession
from tirgym.serving.mcp_wire import Answer, Opening

__all__ = ["Host"]

_CALLS = (
    "loaded", "state", "ir", "legal_actions", "history", "apply", "snapshot", "rollback", "evaluate",
    "profile", "baseline", "export",
)  # fmt: skip
"""Methods of the session that the server may call."""


class Host:
    """The requests that the process answers. SIGINT ends the request at hand, and nothing else."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._session: KernelSession | None = None
        self._best = ""
        self._busy = False
        signal.signal(signal.SIGINT, self._interrupt)

    def open(self, opening: Opening, environment: Mapping[str, str]) -> Answer:
        """Load the kernel; `environment` is the server's, which workers do not inherit."""
        os.environ.update(environment)
        return self._answered(lambda: self._opened(opening))

    def answer(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a method of the session."""
        assert name in _CALLS
        return self._answered(lambda: getattr(self._session, name)(**arguments))

    def _opened(self, opening: Opening) -> Result:
        self._session = KernelSession(opening, self._note)
        return self._session.loaded()

    def _answered(self, work: Callable[[], Result]) -> Answer:
        self._busy = True
        try:
            result = work()
        except TirgymError as error:
            return Answer(None, " ".join(str(error).split()), self._new_best())
        except KeyboardInterrupt:
            return Answer(None, "cancelled")
        finally:
            self._busy = False
        return Answer(result, best=self._new_best())

    def _new_best(self) -> Exported | None:
        best = self._session.best() if self._session is not None else None
        if best is None or best.trace["ir_key"] == self._best:
            return None
        self._best = best.trace["ir_key"]
        return best

    def _interrupt(self, *_: object) -> None:
        if self._busy:
            self._busy = False
            raise KeyboardInterrupt
