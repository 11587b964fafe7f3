"""`StdioAgent`: a decision agent in a process of its own, asked in lines of JSON.

agent = StdioAgent(["tirgym", "serve", "--stdio", "--agent", "random"])
env.decide(compile_guard(agent))
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Sequence

from pydantic import ValidationError

from tirgym.errors import AgentError, AgentTimeoutError, InvalidValueError, TirgymError
from tirgym.harness.decisions.point import DecisionPoint, Recommendation
from tirgym.serving.exchange import ANSWER_BYTES, question_bytes, read_answers, refusal
from tirgym.serving.wire import Description
from tirgym.serving.wire_agent import WireAgent

__all__ = ["StdioAgent"]

_ENDS_S = 1.0
"""Seconds that the process has to end by itself."""
_READ = 1 << 16
_UNREAD = 1 << 20
"""Bytes of questions that the process may leave unread."""
_UNNAMED = re.compile(rb'"request_id": ?null')
_ERROR = re.compile(rb'"error": ?\{')


class StdioAgent(WireAgent):
    """Starts `command` and asks it, `timeout_s` seconds a question; like `RemoteAgent` otherwise.

    The process has `startup_s` seconds to come up; raises AgentError if it does not. One that has died
    is started again by the next question, `restarts` times at most, without waiting for it.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout_s: float = 0.05,
        startup_s: float = 60.0,
        restarts: int = 3,
    ) -> None:
        super().__init__()
        for name, limit in (("timeout_s", timeout_s), ("startup_s", startup_s)):
            if not 0 < limit < float("inf"):
                raise InvalidValueError(name, limit, "a positive number of seconds")
        if not command:
            raise InvalidValueError("command", "", "a program and its arguments")
        self.command, self.timeout_s, self.restarts = tuple(command), timeout_s, restarts
        self._pipe = _Pipe(self.command)
        try:
            self.description = self._describe(startup_s)
        except TirgymError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process that is asked now."""
        return self._pipe.process.pid

    def close(self) -> None:
        """End the process."""
        self._pipe.close()

    def _describe(self, seconds: float) -> Description:
        line = self._pipe.exchange(b'{"describe": true}', time.monotonic() + seconds, ANSWER_BYTES)
        try:
            return Description.model_validate_json(line)
        except ValidationError:
            accepted = "a program that answers like tirgym serve --stdio"
            raise InvalidValueError("command", " ".join(self.command), accepted) from None

    def _ask(self, points: Sequence[DecisionPoint]) -> list[Recommendation | AgentError]:
        """One message and its answers; raises AgentError if there are none at all."""
        if self._pipe.ended and self.restarts > 0:
            self.restarts -= 1
            self._pipe.close()
            self._pipe = _Pipe(self.command)
        ids = self._ids(len(points))
        until = time.monotonic() + self.timeout_s * len(points)
        question = question_bytes(points, ids, 1000 * self.timeout_s)
        line = self._pipe.exchange(question, until, ANSWER_BYTES * len(points))
        while not (mine := ids[0].encode() in line) and not _UNNAMED.search(line):
            line = self._pipe.read_line(until, ANSWER_BYTES * len(points))  # it came too late
        if not mine or (len(ids) == 1 and _ERROR.search(line)):
            raise refusal(self.command[0], line)
        return read_answers(line, ids)


class _Pipe:
    """A process that answers lines; nothing that it does is waited for beyond a time."""

    def __init__(self, command: Sequence[str]) -> None:
        self._name = command[0]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except (OSError, ValueError) as error:  # the latter for a null byte
            accepted = f"a program that can be started ({getattr(error, 'strerror', error)})"
            raise InvalidValueError("command", " ".join(command), accepted) from None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        for file in (self._in, self._out):
            os.set_blocking(file, False)
        self._to_write = b""
        self._read = b""

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def exchange(self, line: bytes, until: float, most: int) -> bytes:
        """Write a line, and the next one that is read; raises AgentError."""
        if len(self._to_write) > _UNREAD:
            raise AgentError(f"{self._what} does not read what it is asked")
        self._to_write += line + b"\n"
        self._write(until)
        return self.read_line(until, most)

    def read_line(self, until: float, most: int) -> bytes:
        """The next line, of `most` bytes at most; raises AgentError."""
        while b"\n" not in self._read:
            if len(self._read) > most:
                self.process.kill()  # the rest of the line would be taken for another answer
                raise AgentError(f"{self._what} answers more than {most} bytes")
            self._wait(self._out, selectors.EVENT_READ, until)
            part = os.read(self._out, _READ)
            if not part:
                raise AgentError(f"{self._what} has ended")
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _write(self, until: float) -> None:
        while self._to_write:
            self._wait(self._in, selectors.EVENT_WRITE, until)
            try:
                written = os.write(self._in, self._to_write)
            except OSError as error:
                raise AgentError(f"{self._what} has ended ({error.strerror})") from None
            self._to_write = self._to_write[written:]

    def _wait(self, file: int, event: int, until: float) -> None:
        """Until `file` is ready."""
        with selectors.DefaultSelector() as selector:
            selector.register(file, event)
            if not selector.select(max(0.0, until - time.monotonic())):
                raise AgentTimeoutError(f"{self._what} gave no answer in time")

    @property
    def _what(self) -> str:
        return f"the agent's process {self._name}"

    def close(self) -> None:
        """End the process, kindly first."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
