"""`RemoteGroup`: an `EnvGroup` in a process of its own.

The process is a fresh interpreter, never a fork: a process in which the compiler's threads ran must
not be forked. It imports nothing of the caller's program, so that scripts and notebooks need no
`if __name__ == "__main__"`. It ends when its other end does, however that ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tirgym.baselines.ppo.env_group import EnvGroup
from tirgym.baselines.ppo.env_spec import EnvSpec
from tirgym.errors import EvaluationError, TirgymError, WorkerDiedError
from tirgym.harness.channel import Channel

__all__ = ["RemoteGroup"]

_START = "from tirgym.baselines.ppo.remote_group import serve; serve(int({fd}))"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CLOSE_S = 10.0


class RemoteGroup:
    """Starts its process at once; the first answer waits until that is ready (about a second)."""

    def __init__(self, spec: EnvSpec, indices: Sequence[int]) -> None:
        self.size = len(indices)
        ours, theirs = socket.socketpair()
        paths = os.pathsep.join(path for path in sys.path if path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(fd=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_file(sys.stderr) else subprocess.DEVNULL,
                env={**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C is for the learner, which then closes its workers
            )
        self._channel = Channel(ours)
        self._channel.send((spec, list(indices)))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, request: str, *arguments: Any) -> None:
        """Begin a request."""
        self._channel.send((request, arguments))

    def receive(self) -> Any:
        """The answer; raises what the request raised, or WorkerDiedError."""
        try:
            kind, answer = self._channel.receive()
        except WorkerDiedError:
            code = self._process.wait(_CLOSE_S)
            raise WorkerDiedError(
                f"a worker process with {self.size} environments ended with {code}; a training "
                f"goes on from its last checkpoint"
            ) from None
        if kind == "error":
            raise answer
        return answer

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _has_file(stream: Any) -> bool:
    try:
        stream.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    return True


def serve(fd: int) -> None:
    """What the process runs: answers requests until the other end closes."""
    channel = Channel(socket.socket(fileno=fd))
    group: EnvGroup | None = None
    try:
        spec, indices = channel.receive()
        while True:
            request, arguments = channel.receive()
            try:
                if group is None:
                    group = EnvGroup(spec, indices)
                answer = ("result", getattr(group, request)(*arguments))
            except TirgymError as error:
                answer = ("error", error)
            except Exception as error:  # noqa: BLE001 - the worker-process border
                text = f"{type(error).__name__}: {error}"
                answer = ("error", EvaluationError(f"an environment failed: {text}"))
            channel.send(answer)
    except WorkerDiedError:
        return
    finally:
        if group is not None:
            group.close()
