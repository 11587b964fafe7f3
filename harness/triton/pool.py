"""`CompilePool`: compilations in processes of their own, several at a time, each with a time limit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from tirgym.errors import TirgymError
from tirgym.harness.channel import Channel
from tirgym.harness.closing import Closing
from tirgym.harness.triton.compile_server import Job
from tirgym.harness.triton.compiling import compiled_before
from tirgym.harness.triton.request import Compiled, CompileRequest
from tirgym.kernels_suite.triton.sources import require_triton

__all__ = ["CompilePool", "compile_apart"]

_CODE = "import sys; from tirgym.harness.triton.compile_server import main; main(*map(int, sys.argv[1:]))"
_COMPILE = "tirgym.harness.triton.compiling:compile_here"


class CompilePool(Closing):
    """Starts its server on first use, and ends it with `close` or when nobody has the pool any more.

    Not thread-safe; raises MissingExtraError without triton.
    """

    def __init__(self, workers: int | None = None, timeout_s: float = 120.0) -> None:
        self.workers = workers or os.cpu_count() or 1
        self.timeout_s = timeout_s
        self._channel: Channel | None = None
        self._end: weakref.finalize[..., Any] | None = None

    def compile(self, request: CompileRequest) -> Compiled:
        """One compilation, or the cache's answer; raises CompileFailedError."""
        (answer,) = self.compile_many([request])
        if isinstance(answer, TirgymError):
            raise answer
        return answer

    def compile_many(self, requests: Sequence[CompileRequest]) -> list[Compiled | TirgymError]:
        """What became of each request, in order: the result or the error that says why not."""
        answers: list[Any] = [compiled_before(request) for request in requests]
        missing = [number for number, answer in enumerate(answers) if answer is None]
        found = self.call_many(_COMPILE, [requests[number] for number in missing])
        for number, answer in zip(missing, found, strict=True):
            answers[number] = answer
        return answers

    def call_many(self, function: str, arguments: Iterable[Any]) -> list[Any]:
        """`function` ("module:name", importable, of one argument) on each of `arguments`, each in a
        process of its own; an error of this package is answered, not raised.

        Raises WorkerDiedError when the server ends in the middle. Whatever ends a call early ends the
        server too, since its answers would be taken for those of the next call, which starts another.
        """
        jobs = [
            Job(number, function, argument, self.timeout_s)
            for number, argument in enumerate(arguments)
        ]
        answers: dict[int, Any] = {}
        if jobs:
            try:
                self._ask(jobs, answers)
            except BaseException:  # Ctrl-C among them
                self.close()
                raise
        return [answers[number] for number in range(len(jobs))]

    def _ask(self, jobs: Sequence[Job], answers: dict[int, Any]) -> None:
        channel = self._connected()
        channel.send(jobs)  # at once: while jobs are on their way the server has nothing to say
        while len(answers) < len(jobs):
            number, answer = channel.receive()
            answers[number] = answer

    def _connected(self) -> Channel:
        if self._channel is None:
            require_triton("compiling for GPUs")
            ours, theirs = socket.socketpair()
            paths = os.pathsep.join(path for path in sys.path if path)
            server = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(theirs.fileno()), str(self.workers)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
            theirs.close()
            self._channel = Channel(ours)
            self._end = weakref.finalize(self, _end, server, self._channel)
        return self._channel

    def close(self) -> None:
        """End the server and what it runs."""
        if self._end is not None:
            self._end()
        self._channel = self._end = None


def _end(server: subprocess.Popen[bytes], channel: Channel) -> None:
    """The server ends when its socket closes."""
    channel.close()
    server.wait()


def compile_apart(request: CompileRequest) -> Compiled:
    """One compilation in a process of its own, or the cache's answer; raises CompileFailedError."""
    with CompilePool(1) as pool:
        return pool.compile(request)
