"""The fork server: a process that imported the compiler once and forks ready workers in milliseconds.

It runs no parallel kernel, ever (a fork after one hangs), keeps a single thread, and ends with all
its workers as soon as the process that started it is gone, however that one ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from tirgym.harness.huge_pages import without_huge_pages

__all__ = ["WorkerLimits", "die_with_parent", "kill_group", "main"]

REPLY = struct.Struct("<i")
"""fork: the worker's process id; wait: its exit status as of `os.waitstatus_to_exitcode`"""
STILL_RUNNING = -(2**31)
_PR_SET_PDEATHSIG = 1
_MAX_REQUEST = 65536


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What one worker may use."""

    num_threads: int = 1
    """TVM_NUM_THREADS; libraries inside NumPy always get one"""
    memory_bytes: int | None = 4 << 30
    """address space beyond what a fresh worker maps (RLIMIT_AS); None: no limit"""
    file_bytes: int = 16 << 20
    """largest file a worker may write, which bounds what it can print (RLIMIT_FSIZE)"""


def die_with_parent() -> None:
    """Ask the kernel to end this process when the thread that made it ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """End a process and its group; a fork of a moment ago has none yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _limit(limits: WorkerLimits) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    if limits.memory_bytes is not None and sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        bound = mapped + limits.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def _become_worker(
    channel: int, output: int, limits: WorkerLimits, operations: str, server: int
) -> NoReturn:
    """Turn a fresh fork into a worker; never returns."""
    status = 1
    try:
        os.setsid()
        die_with_parent()
        without_huge_pages()
        if os.getppid() != server:
            os._exit(1)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, fixed in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, fixed)
        os.environ["TVM_NUM_THREADS"] = str(limits.num_threads)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _limit(limits)
        from tirgym.harness.worker_process import serve

        serve(socket.socket(fileno=channel), operations)
        status = 0
    except BaseException:  # noqa: BLE001 - said once, then the process ends
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


class _Server:
    def __init__(self, control: socket.socket, parent: int) -> None:
        self.control, self.parent = control, parent
        self.workers: set[int] = set()
        try:
            self.parent_end: int | None = os.pidfd_open(parent)
        except (AttributeError, OSError):  # not Linux, or an old kernel: look once a second
            self.parent_end = None

    def run(self) -> None:
        watched: list[Any] = (
            [self.control] if self.parent_end is None else [self.control, self.parent_end]
        )
        while os.getppid() == self.parent:
            ready, _, _ = select.select(watched, [], [], 1.0)
            if self.parent_end in ready:
                return
            if self.control in ready and not self.answer():
                return

    def answer(self) -> bool:
        """Answer one request; False at the end of file."""
        data, fds, _, _ = socket.recv_fds(self.control, _MAX_REQUEST, 2)
        if not data:
            return False
        request = json.loads(data)
        if "wait" in request:
            self.control.sendall(REPLY.pack(self.reap(request["wait"])))
            return True
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.control.close()
            if self.parent_end is not None:
                os.close(self.parent_end)
            limits = WorkerLimits(**request["fork"])
            _become_worker(fds[0], fds[1], limits, request["operations"], me)
        self.workers.add(pid)
        for fd in fds:
            os.close(fd)
        self.control.sendall(REPLY.pack(pid))
        return True

    def reap(self, pid: int) -> int:
        """Exit status of an ended worker, or STILL_RUNNING."""
        if pid not in self.workers:
            return 0
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == 0:
            return STILL_RUNNING
        self.workers.discard(pid)
        return os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """End every worker with its process group."""
        for pid in sorted(self.workers):
            kill_group(pid)


def main(control_fd: int, parent: int) -> NoReturn:
    """Serve until the control socket closes or the process `parent` ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(socket.socket(fileno=control_fd), parent)
    try:
        from tirgym.harness.worker_process import warm_up

        warm_up()
        server.run()
    except BaseException:  # noqa: BLE001 - said once, then the process ends
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        server.end()
        os._exit(0)
