"""`Pending`: a request that a worker is at; several can be waited for at once, without threads."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tirgym.errors import WorkerDiedError
from tirgym.harness.channel import Channel, DeadlineError

__all__ = ["Pending", "RemoteError", "wait_any"]


class RemoteError(Exception):
    """An exception inside the worker that it survived: `kind` is "memory" or "error"."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind, self.message = kind, message
        super().__init__(kind, message)


class _Asked(Protocol):
    """What a request needs of its worker."""

    channel: Channel

    def kill(self) -> str:
        """End the worker now; says how it ended."""

    def bury(self) -> str:
        """Let a worker that closed its channel end by itself; says how it ended."""


class Pending:
    """One request: its notes, its deadline, and in the end its answer.

    A note from the worker starts a new phase whose timeout `on_note` answers. A deadline is looked
    at when somebody waits: an answer that is there by then counts, however late that is.
    """

    def __init__(
        self, worker: _Asked, timeout_s: float, on_note: Callable[[str], float] | None
    ) -> None:
        self._worker, self._timeout_s, self._on_note = worker, timeout_s, on_note
        self.deadline = time.monotonic() + timeout_s
        self.done = False
        self._answer: Any = None
        self._error: Exception | None = None

    def fileno(self) -> int:
        """The file descriptor to wait for."""
        return self._worker.channel.fileno()

    def advance(self) -> None:
        """Take the next message; end the worker if none comes before the deadline.

        Any other exception than the worker's own, such as KeyboardInterrupt, ends the worker too.
        """
        try:
            left = max(0.0, self.deadline - time.monotonic())
            kind, *rest = self._worker.channel.receive(left)
        except WorkerDiedError:
            self.fail(WorkerDiedError(self._worker.bury()))
        except DeadlineError as error:
            self._worker.kill()
            self.fail(error)
        except BaseException:
            self._worker.kill()
            raise
        else:
            self._take(kind, rest[0])

    def _take(self, kind: str, content: Any) -> None:
        if kind == "note":
            if self._on_note is not None:
                self._timeout_s = self._on_note(content)
            self.deadline = time.monotonic() + self._timeout_s
        elif kind == "result":
            self._answer, self.done = content, True
        else:
            self.fail(RemoteError(kind, content))

    def fail(self, error: Exception) -> None:
        """End with `error`."""
        self._error, self.done = error, True

    def wait(self) -> None:
        """Until it is done."""
        try:
            while not self.done:
                wait_any([self])
        except BaseException:
            self._worker.kill()
            raise

    def result(self) -> Any:
        """The answer; raises RemoteError, DeadlineError or WorkerDiedError."""
        if self._error is not None:
            raise self._error
        return self._answer


def wait_any(requests: Sequence[Pending]) -> None:
    """Until at least one of them has moved on: by a message, or by its deadline."""
    first = min(request.deadline for request in requests)
    ready = select.select(requests, [], [], max(0.0, first - time.monotonic()))[0]
    now = time.monotonic()
    for request in requests:
        if request in ready or request.deadline <= now:
            request.advance()
