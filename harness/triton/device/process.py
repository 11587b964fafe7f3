"""`DeviceProcess`: the device's process as seen from outside, with deadlines, replaced when it is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from typing import IO, Any

from tirgym.errors import WorkerDiedError
from tirgym.harness.channel import Channel, DeadlineError
from tirgym.harness.closing import Closing
from tirgym.harness.fork_server import kill_group
from tirgym.harness.triton.device.worker import ANSWERED, FAILED
from tirgym.harness.triton.stderr import last_line

__all__ = ["CUDA", "DeviceProcess"]

CUDA = "tirgym.harness.triton.device.cuda:open_cuda"
_CODE = (
    "import sys; from tirgym.harness.triton.device.worker import main; "
    "main(int(sys.argv[1]), *sys.argv[2:])"
)
_START_S = 180.0


class DeviceProcess(Closing):
    """Starts its process on first use, and again after it was lost. Not thread-safe."""

    def __init__(self, factory: str = CUDA, *, secret: bytes) -> None:
        """`factory` ("module:function") opens the device."""
        self._factory, self._secret = factory, secret
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._stderr: IO[bytes] | None = None
        self.lost = 0
        """processes that a call took with it"""

    def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """What `DeviceDesk.method` answers.

        Raises what it raises of this package, DeadlineError after `timeout_s`, and WorkerDiedError where
        the process or its context is gone; after the last two, and after a call that was interrupted,
        the process is replaced.
        """
        try:
            kind, answer = self._exchange(method, arguments, timeout_s)
        except DeadlineError:
            self._lose()
            raise DeadlineError(f"no answer in {timeout_s:g} s; the process was ended") from None
        except WorkerDiedError:
            raise WorkerDiedError(f"the device's process ended{self._lose()}") from None
        except BaseException:  # Ctrl-C among them
            self.close()  # its answer would be taken for that of the next call
            raise
        if kind == ANSWERED:
            return answer
        if kind == FAILED:
            raise answer
        self._lose()
        raise WorkerDiedError(answer)

    def _exchange(
        self, method: str, arguments: tuple[Any, ...], timeout_s: float
    ) -> tuple[str, Any]:
        """Kind and content of the answer; of the start's where the device does not open."""
        if self._channel is None:
            kind, problem = self._start().receive(_START_S)
            if kind != ANSWERED:
                self.close()
                return kind, problem
        assert self._channel is not None
        self._channel.send((method, arguments))
        kind, answer = self._channel.receive(timeout_s)
        return kind, answer

    def _start(self) -> Channel:
        ours, theirs = socket.socketpair()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _CODE,
                str(theirs.fileno()),
                self._factory,
                self._secret.hex(),
            ],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        theirs.close()
        self._channel = Channel(ours)
        return self._channel

    def _lose(self) -> str:
        """Give the process up; its last words, if any."""
        words = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            line = last_line(self._stderr.read().decode("utf-8", "replace"))
            words = f": {line}" if line else ""
        self.lost += 1
        self.close()
        return words

    def close(self) -> None:
        """End the process."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            kill_group(self._process.pid)
            self._process.wait()
        if self._stderr is not None:
            self._stderr.close()
        self._process = self._channel = self._stderr = None
