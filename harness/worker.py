"""`Worker`: a warm, killable process that builds, checks and times; `WorkerPool` keeps a spare."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness.channel import Channel
from tirgym.harness.evaluator import UNMEASURED
from tirgym.harness.fork_server import REPLY, STILL_RUNNING, WorkerLimits, kill_group
from tirgym.harness.pending import Pending, RemoteError

__all__ = ["RemoteError", "Worker", "WorkerLimits", "WorkerPool", "prestart_workers"]

_KEPT_ENVIRONMENT = (
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "TMPDIR",
    "TZ",
    "USER",
)
_START_S = 120.0
"""A fork server imports the compiler; 0.7 s alone, tens of seconds on an overloaded machine."""
_STDERR_TAIL = 16_384
_BACKTRACE = ('File "', "!!!!!!! Segfault")
_DYING_S = 2.0
"""How long a worker that closed its channel may take to end: aborts print first."""
_KILL_S = 20.0


OPERATIONS = "tirgym.harness.operations:Operations"
"""What a worker answers: a class whose instances are made with a function that sends notes."""


class ForkServer:
    """Client side of `tirgym.harness.fork_server`; one for each process of the user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = False
        self.owner = os.getpid()
        mine, theirs = socket.socketpair()
        mine.settimeout(_START_S)
        code = (
            f"import sys; sys.path[:] = {[os.path.abspath(p) for p in sys.path]!r}; "
            "from tirgym.harness.fork_server import main; "
            f"main({theirs.fileno()}, {self.owner})"
        )
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                env=scrubbed_environment(),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        self._control = mine

    def fork(
        self, channel: socket.socket, output: int, limits: WorkerLimits, operations: str
    ) -> int:
        """Process id of a new worker that talks through `channel` and prints to `output`."""
        request = json.dumps({"fork": asdict(limits), "operations": operations}).encode()
        with self._asking():
            socket.send_fds(self._control, [request], [channel.fileno(), output])
            return self._reply()

    def wait(self, pid: int, timeout_s: float = 10.0) -> int | None:
        """Exit status of a worker that is ending (negative: the signal); None if unknown."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.alive():
            try:
                with self._asking():
                    self._control.sendall(json.dumps({"wait": pid}).encode())
                    status = self._reply()
            except WorkerDiedError:
                return None
            if status != STILL_RUNNING:
                return status
            time.sleep(0.001)
        return None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """One request and its reply. If that is cut off, by Ctrl-C for instance, the next reply
        would belong to this request, so the server has to end."""
        with self._lock:
            try:
                yield
            except OSError as error:
                self._end()
                raise WorkerDiedError(self._why_dead(error)) from None
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        self._ended = True
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()

    def alive(self) -> bool:
        """Whether the server belongs to this process and runs."""
        return not self._ended and self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """End the server and with it all its workers."""
        self._control.close()
        if self.owner == os.getpid():
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()

    def _reply(self) -> int:
        data = self._control.recv(REPLY.size, socket.MSG_WAITALL)
        if len(data) < REPLY.size:
            raise WorkerDiedError(self._why_dead(None))
        return int(REPLY.unpack(data)[0])

    def _why_dead(self, error: OSError | None) -> str:
        tail = read_tail(self._log.fileno())
        return f"the worker server ended ({error or 'end of file'}): {tail or 'no output'}"


_server: ForkServer | None = None
_server_lock = threading.Lock()


def fork_server() -> ForkServer:
    """The fork server of this process, started if there is none (or if this process is a fork)."""
    global _server
    with _server_lock:
        if _server is None or not _server.alive():
            if _server is not None and _server.owner == os.getpid():
                _server.close()
            elif _server is None:
                atexit.register(_close_server)
            _server = ForkServer()
        return _server


def prestart_workers(backend: str) -> None:
    """Start the fork server, if programs of `backend` are measured at all: it then imports the compiler
    while this process does."""
    if backend not in UNMEASURED:
        fork_server()


def _close_server() -> None:
    global _server
    if _server is not None and _server.owner == os.getpid():
        _server.close()
    _server = None


def scrubbed_environment() -> dict[str, str]:
    """What a worker sees: nothing that changes code or threads but what is set here."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    libraries = (
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    )
    fixed = {"PYTHONHASHSEED": "0", "TVM_NUM_THREADS": "1"}
    return {**kept, **dict.fromkeys(libraries, "1"), **fixed}


def read_tail(fd: int) -> str:
    """The last lines written to a file, on one line; TVM's native backtraces left out."""
    size = os.fstat(fd).st_size
    data = os.pread(fd, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    told = [line for line in lines if line and not line.startswith(_BACKTRACE)]
    return " ".join(" ".join(told).split())


class Worker:
    """One worker process. After an exception from `call` other than RemoteError it is dead."""

    def __init__(self, limits: WorkerLimits, operations: str = OPERATIONS) -> None:
        mine, theirs = socket.socketpair()
        self._output = unlinked_file()
        self._server = fork_server()
        try:
            with theirs:
                self.pid = self._server.fork(theirs, self._output, limits, operations)
        except BaseException:
            mine.close()
            os.close(self._output)
            raise
        self.channel = Channel(mine)
        self._closed = False
        self._status: int | None = None

    def usable(self) -> bool:
        """Whether it is open and its server lives; a worker dies with its server."""
        return not self._closed and self._server.alive()

    def start(
        self,
        operation: str,
        *arguments: Any,
        timeout_s: float,
        on_note: Callable[[str], float] | None = None,
    ) -> Pending:
        """Ask for `operation`; the answer can be waited for later, together with others."""
        pending = Pending(self, timeout_s, on_note)
        try:
            os.ftruncate(self._output, 0)
            self.channel.send((operation, arguments))
        except WorkerDiedError:
            pending.fail(WorkerDiedError(self.bury()))
        except BaseException:
            self.kill()
            raise
        return pending

    def call(
        self,
        operation: str,
        *arguments: Any,
        timeout_s: float,
        on_note: Callable[[str], float] | None = None,
    ) -> Any:
        """Run `operation` in the worker and answer its result.

        A note from the worker starts a new phase whose timeout `on_note` answers. Raises
        RemoteError, DeadlineError (the worker is killed) or WorkerDiedError with the signal. Any
        other exception, such as KeyboardInterrupt, kills the worker on its way.
        """
        pending = self.start(operation, *arguments, timeout_s=timeout_s, on_note=on_note)
        pending.wait()
        return pending.result()

    def bury(self) -> str:
        """Let a worker that closed its channel end by itself, for its own exit status; says how."""
        self._status = self._server.wait(self.pid, _DYING_S)
        return self.kill()

    def kill(self) -> str:
        """End the whole process group now; says how the worker ended and what it last printed."""
        if self._closed:
            return "closed"
        self._closed = True
        if self._status is None:  # not reaped yet, so the id cannot be another's
            kill_group(self.pid)
        status = self._status
        if status is None:
            status = self._server.wait(self.pid, _KILL_S)
        printed = read_tail(self._output)
        self.channel.close()
        os.close(self._output)
        if status is None:
            if self._server.alive():
                raise EvaluationError(f"worker {self.pid} did not end after SIGKILL")
            return "the worker server ended"
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return f"{how}: {printed}" if printed else how


def unlinked_file() -> int:
    """Descriptor of an empty file without a name, gone when the last process closes it. Writes go
    to its end, so that it can be emptied while another process writes."""
    fd, path = tempfile.mkstemp(prefix="tirgym-worker-")
    os.unlink(path)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


class WorkerPool:
    """One worker in use and one spare forked ahead of need."""

    def __init__(self, limits: WorkerLimits, operations: str = OPERATIONS) -> None:
        self.limits, self.operations = limits, operations
        self._current: Worker | None = None
        self._spare: Worker | None = None
        self._owner = os.getpid()

    def worker(self) -> tuple[Worker, bool]:
        """The worker, and whether it is new (its caches are empty)."""
        if self._owner != os.getpid():
            raise EvaluationError("an evaluator cannot be used after a fork; make one in the child")
        if self._current is not None and self._current.usable():
            return self._current, False
        self.discard()
        if self._spare is not None and not self._spare.usable():
            self._spare.kill()
            self._spare = None
        self._current = self._spare or Worker(self.limits, self.operations)
        self._spare = Worker(self.limits, self.operations)
        return self._current, True

    def discard(self) -> None:
        """Kill the worker; the next `worker()` is the spare."""
        if self._current is not None:
            current, self._current = self._current, None
            current.kill()

    def close(self) -> None:
        """Kill both."""
        for worker in (self._current, self._spare):
            if worker is not None and self._owner == os.getpid():
                worker.kill()
        self._current = self._spare = None
