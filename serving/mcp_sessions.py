"""`Sessions`: the open sessions of one server, their limits, and the way to their processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from tirgym.errors import EvaluationError, InvalidValueError, UsageError, WorkerDiedError
from tirgym.harness.channel import DeadlineError
from tirgym.harness.worker import RemoteError, Worker, WorkerLimits
from tirgym.serving.mcp_results import Exported, Result
from tirgym.serving.mcp_wire import Answer, Opening

__all__ = ["SessionLimits", "Sessions", "Tell"]

Tell = Callable[[float, str], Awaitable[None]]
"""Hears how a call goes: seconds since it began, and what it is at."""

OPERATIONS = "tirgym.serving.mcp_host:Host"
_BEAT_S = 0.25
_SILENCE_S = 5.0
"""Without news a call is reported after this time."""
_PATIENCE_S = 5.0
"""For a process to end a request that was cancelled; then it is killed."""
_GRACE_S = 30.0
"""Beyond a session's time, for the one call at hand to be answered."""
_REMEMBERED = 64
"""Ended sessions whose end is explained."""
_FILE_BYTES = 1 << 40
"""Largest file of a session's process: it writes the measurement store."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the sessions of a server may use."""

    sessions: int = 4
    """open at once"""
    trials: int = 64
    """of one session"""
    seconds: float = 3600.0
    """that a session lives"""
    idle_s: float = 900.0
    """without a call after which a session ends"""

    def __post_init__(self) -> None:
        """Raises InvalidValueError for a limit that leaves nothing to do."""
        for name, value in (("sessions", self.sessions), ("trials", self.trials)):
            if value < 1:
                raise InvalidValueError(f"--{name}", value, "a whole number of at least 1")
        for name, seconds in (("seconds", self.seconds), ("idle", self.idle_s)):
            if not 0 < seconds < float("inf"):
                raise InvalidValueError(f"--{name}", seconds, "a positive number of seconds")


@dataclass
class _Session:
    """The server's side of one session."""

    name: str
    deadline: float
    """by the clock of the event loop"""
    last_used: float
    worker: Worker | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    wire: threading.Lock = field(default_factory=threading.Lock)
    """held while a thread talks to the process"""
    calls: int = 0
    """at hand or waiting"""
    ended: str = ""
    """why it ended"""
    best: Exported | None = None


class Sessions:
    """Opens, asks and ends sessions. One call of a session at a time; sessions do not wait for each
    other, but timings on one machine never overlap.

    They live within `running()`. `operations` is the class that a session's
    process runs (`tirgym.harness.worker.Worker`).
    """

    def __init__(self, limits: SessionLimits, operations: str = OPERATIONS) -> None:
        self.limits, self.operations = limits, operations
        self._table: dict[str, _Session] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watches over the sessions, and ends them all in the end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.watch)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self.shut()

    async def open(self, opening: Opening, tell: Tell) -> Result:
        """A new session; `opening` is completed with its handle. Raises UsageError."""
        running = [each for each in self._table.values() if not each.ended]
        limits = self.limits
        if len(running) >= limits.sessions:
            raise UsageError(
                f"{len(running)} sessions are open, as many as this server allows (--sessions); "
                f"close one, or wait: a session ends after {limits.idle_s:.0f} s without a call"
            )
        now = anyio.current_time()
        session = _Session(secrets.token_urlsafe(12), now + limits.seconds, now)
        self._table[session.name] = session
        opening = replace(opening, session=session.name)
        try:
            return await self._ask(session, "open", (opening, dict(os.environ)), tell)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end(session, "it could not be loaded")
            self._table.pop(session.name, None)
            raise

    async def ask(self, name: str, call: str, arguments: Mapping[str, Any], tell: Tell) -> Result:
        """The answer of a session to a call; raises UsageError with one line."""
        session = self._find(name)
        return await self._ask(session, "answer", (call, arguments), tell)

    async def close(self, name: str) -> None:
        """End a session; raises UsageError if it is not open."""
        await self._end(self._find(name), "it was closed")

    def last_best(self, name: str) -> Exported | None:
        """The best program of a session that ended, with the number of the search; else None."""
        session = self._table.get(name)
        return session.best if session is not None and session.ended else None

    async def watch(self) -> None:
        """End the sessions whose time is over, or that nobody uses."""
        limits = self.limits
        while True:
            await anyio.sleep(min(1.0, limits.seconds / 4, limits.idle_s / 4))
            now = anyio.current_time()
            for session in [each for each in self._table.values() if not each.ended]:
                if now >= session.deadline:
                    await self._end(session, f"its {limits.seconds:.0f} s are over")
                elif not session.calls and now - session.last_used >= limits.idle_s:
                    await self._end(session, f"there was no call for {limits.idle_s:.0f} s")
            self._forget()

    async def shut(self) -> None:
        """End every session."""
        for session in list(self._table.values()):
            if not session.ended:
                await self._end(session, "the server ended")

    def _forget(self) -> None:
        ended = [each.name for each in self._table.values() if each.ended]
        for name in ended[:-_REMEMBERED]:
            del self._table[name]

    def _find(self, name: str) -> _Session:
        session = self._table.get(name)
        if session is None:
            raise InvalidValueError("session", name, "the handle that load answered")
        if session.ended:
            raise UsageError(_ended(session))
        return session

    async def _ask(
        self, session: _Session, operation: str, arguments: tuple[Any, ...], tell: Tell
    ) -> Result:
        session.calls += 1
        try:
            async with session.lock:
                if session.ended:
                    raise UsageError(_ended(session))
                call = _Call(session, self.operations, operation, arguments, self.limits.seconds)
                answer = await call.run(tell)
        finally:
            session.calls -= 1
            session.last_used = anyio.current_time()
        if isinstance(answer, RemoteError):
            raise UsageError(answer.message)
        if isinstance(answer, Exception):
            if not session.ended:
                await self._end(session, f"its process ended ({answer})")
            raise UsageError(_ended(session))
        session.best = answer.best or session.best
        if answer.result is None:
            raise UsageError(answer.refusal)
        return answer.result

    async def _end(self, session: _Session, why: str) -> None:
        """Kill the process, whatever it is at, and wait until its caller knows."""
        session.ended = session.ended or why
        _signal(session, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            async with session.lock:
                if session.worker is not None:
                    await anyio.to_thread.run_sync(_kill, session)


def _ended(session: _Session) -> str:
    kept = "; export_trace(measure=false) answers its best program" if session.best else ""
    return f"session {session.name} has ended: {session.ended}; load begins a new one{kept}"


def _signal(session: _Session, number: int) -> None:
    """Send a signal to the session's process alone (SIGKILL: with its group)."""
    worker = session.worker
    if worker is None or not worker.usable():
        return
    send = os.killpg if number == signal.SIGKILL else os.kill
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(worker.pid, number)


def _kill(session: _Session) -> None:
    with session.wire, contextlib.suppress(EvaluationError):
        if session.worker is not None:
            session.worker.kill()


class _Call:
    """One request to the process of a session, in a thread."""

    def __init__(
        self,
        session: _Session,
        operations: str,
        operation: str,
        arguments: tuple[Any, ...],
        seconds: float,
    ) -> None:
        self.session, self.operations = session, operations
        self.operation, self.arguments = operation, arguments
        self.timeout_s = seconds + _GRACE_S
        self.news: deque[str] = deque(maxlen=1)
        self.begun, self.finished = threading.Event(), threading.Event()

    async def run(self, tell: Tell) -> Answer | Exception:
        """The answer, or the error that there is in its place; tells how it goes meanwhile."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._report, tell)
            try:
                answer = await anyio.to_thread.run_sync(self._work, abandon_on_cancel=True)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._interrupt()
                raise
            group.cancel_scope.cancel()
        return answer

    def _work(self) -> Answer | Exception:
        self.begun.set()
        session = self.session
        try:
            with session.wire:
                if session.worker is None:
                    limits = WorkerLimits(memory_bytes=None, file_bytes=_FILE_BYTES)
                    session.worker = Worker(limits, self.operations)
                elif not session.worker.usable():
                    return WorkerDiedError("it is gone")
                ask = partial(session.worker.call, self.operation, *self.arguments)
                answer: Answer = ask(timeout_s=self.timeout_s, on_note=self._note)
                return answer
        except (RemoteError, WorkerDiedError, DeadlineError, EvaluationError) as error:
            return error
        finally:
            self.finished.set()

    def _note(self, text: str) -> float:
        self.news.append(text)
        return self.timeout_s

    async def _report(self, tell: Tell) -> None:
        began = said = anyio.current_time()
        text = self.operation
        while True:
            await anyio.sleep(_BEAT_S)
            now = anyio.current_time()
            if self.news or now - said >= _SILENCE_S:
                text = self.news.popleft() if self.news else text
                said = now
                await tell(now - began, text)

    async def _interrupt(self) -> None:
        """End the request in the process, and kill the process if it goes on."""
        left = _PATIENCE_S
        while not self.finished.is_set() and left > 0:
            if self.begun.is_set():
                _signal(self.session, signal.SIGINT)
            elif left < _PATIENCE_S - 0.2:
                return  # no thread took it up
            await anyio.sleep(0.05)
            left -= 0.05
        if not self.finished.is_set():
            self.session.ended = "its process had to be killed to cancel a call"
            _signal(self.session, signal.SIGKILL)
            while not self.finished.is_set():
                await anyio.sleep(0.05)
