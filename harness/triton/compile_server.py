"""The compile server: a process that imported Triton once and forks a fresh child for each request.

A child that crashes, hangs or uses too much memory takes nothing else with it; what it wrote on
stderr before is kept. The server has one thread and ends with the process that started it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any, NoReturn

from tirgym.errors import CompileFailedError, TirgymError, WorkerDiedError
from tirgym.harness.channel import Channel
from tirgym.harness.fork_server import die_with_parent, kill_group
from tirgym.harness.triton.stderr import complaints, last_line

__all__ = ["Job", "main"]

_MAX_LOG = 1 << 20
_TRACEBACK = "Traceback (most recent call last):"
_LONG_S = 3600.0


@dataclass(frozen=True, slots=True)
class Job:
    """One call: a function of this package and its argument."""

    number: int
    function: str
    """"module:name" below tirgym"""
    argument: Any
    timeout_s: float


@dataclass(slots=True)
class _Child:
    job: Job
    pid: int
    deadline: float
    stderr: IO[bytes]
    answer: bytearray = field(default_factory=bytearray)
    late: bool = False


def main(control_fd: int, workers: int) -> NoReturn:
    """Serve until the socket closes; never returns."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=control_fd))
    server = _Server(channel, workers)
    try:
        import_module("triton.compiler")  # once, for every child

        server.run()
    except WorkerDiedError:
        pass
    except BaseException:  # noqa: BLE001 - said once, then the process ends
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        server.end()
        os._exit(0)


class _Server:
    def __init__(self, channel: Channel, workers: int) -> None:
        self.channel, self.workers = channel, workers
        self.waiting: deque[Job] = deque()
        self.children: dict[int, _Child] = {}

    def run(self) -> None:
        while True:
            while self.waiting and len(self.children) < self.workers:
                self._start(self.waiting.popleft())
            ends = [child.deadline for child in self.children.values()]
            patience = max(0.0, min(ends) - time.monotonic()) if ends else _LONG_S
            control = self.channel.fileno()
            ready, _, _ = select.select([control, *self.children], [], [], patience)
            for pipe in ready:
                if pipe == control:
                    self.waiting.extend(self.channel.receive())
                elif data := os.read(pipe, 1 << 20):
                    self.children[pipe].answer += data
                else:
                    self._finish(pipe)
            for child in self.children.values():
                if time.monotonic() > child.deadline:
                    child.late = True
                    child.deadline += _LONG_S
                    kill_group(child.pid)

    def _start(self, job: Job) -> None:
        read, write = os.pipe()
        stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _work(job, write, stderr)
        os.close(write)
        self.children[read] = _Child(job, pid, time.monotonic() + job.timeout_s, stderr)

    def _finish(self, pipe: int) -> None:
        child = self.children.pop(pipe)
        os.close(pipe)
        _, status = os.waitpid(child.pid, 0)
        self.channel.send((child.job.number, _result(child, os.waitstatus_to_exitcode(status))))
        child.stderr.close()

    def end(self) -> None:
        """Kill every child."""
        for child in self.children.values():
            kill_group(child.pid)


def _result(child: _Child, status: int) -> Any:
    """What the child answered, or the error that its end means."""
    if child.late:
        return _lost(child, f"the compiler took over {child.job.timeout_s:g} s and was stopped")
    try:
        return pickle.loads(bytes(child.answer))
    except (EOFError, pickle.UnpicklingError):
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return _lost(child, f"the compiler's process ended with {how}")


def _lost(child: _Child, reason: str) -> CompileFailedError:
    child.stderr.seek(0)
    log = child.stderr.read(_MAX_LOG).decode("utf-8", "replace")
    words = complaints(log) or (last_line(log) if _TRACEBACK in log else "")
    return CompileFailedError("process", f"{reason}\n{words}" if words else reason, log)


def _work(job: Job, write: int, stderr: IO[bytes]) -> NoReturn:
    """In the child: call the function, answer, end."""
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(stderr.fileno(), 2)
        answer = _called(job)
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe, 5)
    except BaseException:  # noqa: BLE001 - the process border
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _called(job: Job) -> Any:
    module, _, name = job.function.partition(":")
    try:
        return getattr(import_module(module), name)(job.argument)
    except TirgymError as error:
        return error
