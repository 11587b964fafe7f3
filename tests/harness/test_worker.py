"""Workers: isolation, deadlines, Ctrl-C, dead parents, and a channel that printing cannot break."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe import OPERATIONS
from processes import gone, wait_until

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness import worker as worker_module
from tirgym.harness.channel import Channel, DeadlineError
from tirgym.harness.file_lock import FileLock
from tirgym.harness.pending import wait_any
from tirgym.harness.worker import (
    RemoteError,
    Worker,
    WorkerLimits,
    WorkerPool,
    fork_server,
    prestart_workers,
)

LIMITS = WorkerLimits(memory_bytes=1 << 30)
SLOW_S = 60.0
"""A deadline that only a hang misses."""


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(LIMITS, OPERATIONS)
    yield made
    made.kill()


def run(worker: Worker, code: str, timeout_s: float = SLOW_S) -> object:
    """`code` in the worker; its variable `answer`."""
    return worker.call("probe", textwrap.dedent(code), timeout_s=timeout_s)


def test_a_worker_sees_a_scrubbed_environment(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = run(worker, "import os; answer = dict(os.environ)")
    assert isinstance(seen, dict)
    assert seen["TVM_NUM_THREADS"] == seen["OPENBLAS_NUM_THREADS"] == seen["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    kept = worker_module.scrubbed_environment()
    assert "LD_PRELOAD" not in kept
    assert "PYTHONPATH" not in kept


def test_the_number_of_threads_is_the_workers_own() -> None:
    made = Worker(WorkerLimits(num_threads=2), OPERATIONS)
    assert run(made, "import os; answer = os.environ['TVM_NUM_THREADS']") == "2"
    made.kill()


def test_a_worker_leads_a_session_of_its_own(worker: Worker) -> None:
    ids = run(worker, "import os; answer = (os.getpid(), os.getpgid(0), os.getsid(0))")
    assert ids == (worker.pid, worker.pid, worker.pid)


def test_printing_does_not_reach_the_channel_or_the_terminal(
    worker: Worker, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
        import os, sys
        print("x" * 100_000, flush=True)
        os.write(1, b"y" * 100_000)
        os.write(2, b"z" * 100_000)
        answer = 42
    """
    assert run(worker, code) == 42
    assert capfd.readouterr() == ("", "")


def test_endless_printing_is_cut_off(worker: Worker) -> None:
    code = """
        import os
        written = 0
        try:
            while written < 1 << 30:
                written += os.write(1, b"x" * (1 << 20))
        except OSError as error:
            answer = (written, type(error).__name__)
        """
    assert run(worker, code) == (LIMITS.file_bytes, "OSError")


def test_exceptions_come_back_and_the_worker_lives(worker: Worker) -> None:
    with pytest.raises(RemoteError) as caught:
        run(worker, "raise ValueError('first\\n  the reason  \\n')")
    assert (caught.value.kind, caught.value.message) == ("error", "ValueError: the reason")
    assert run(worker, "answer = 1") == 1


def test_memory_is_limited(worker: Worker) -> None:
    with pytest.raises(RemoteError) as caught:
        run(worker, "answer = len(bytearray(1 << 32))")
    assert caught.value.kind == "memory"
    assert run(worker, "answer = len(bytearray(1 << 28))") == 1 << 28


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL"])
def test_death_is_reported_with_its_signal_and_last_words(worker: Worker, name: str) -> None:
    code = f"""
        import os, signal
        os.write(2, b"last words\\n")
        os.kill(os.getpid(), signal.{name})
    """
    with pytest.raises(WorkerDiedError, match=f"{name}: last words"):
        run(worker, code)
    assert not worker.usable()


def test_a_deadline_kills(worker: Worker) -> None:
    with pytest.raises(DeadlineError):
        run(worker, "while True: pass", timeout_s=0.2)
    assert wait_until(lambda: gone(worker.pid))


def test_two_workers_are_waited_for_at_once(worker: Worker) -> None:
    other = Worker(LIMITS, OPERATIONS)
    hanging = worker.start("probe", "while True: pass", timeout_s=0.3)
    quick = other.start("probe", "answer = 1", timeout_s=SLOW_S)
    requests = [hanging, quick]
    while waiting := [request for request in requests if not request.done]:
        wait_any(waiting)
    assert quick.result() == 1
    with pytest.raises(DeadlineError):
        hanging.result()
    assert run(other, "answer = 2") == 2, "the deadline was not this one's"
    other.kill()


def test_an_answer_that_is_there_counts_however_late_somebody_looks(worker: Worker) -> None:
    request = worker.start("probe", "answer = 3", timeout_s=5.0)
    assert wait_until(lambda: bool(select.select([request], [], [], 0)[0]))
    request.deadline = time.monotonic() - 1.0
    request.wait()
    assert request.result() == 3


def test_children_of_a_worker_die_with_it(worker: Worker) -> None:
    child = run(
        worker,
        """
        import os, time
        answer = os.fork()
        if answer == 0:
            time.sleep(600)
        """,
    )
    assert isinstance(child, int)
    worker.kill()
    assert wait_until(lambda: gone(child))


def test_ctrl_c_kills_the_worker_and_comes_through(worker: Worker) -> None:
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(worker, "import time; time.sleep(600)")
    timer.join()
    assert time.monotonic() - started < 30.0
    assert wait_until(lambda: gone(worker.pid))


@pytest.mark.skipif(
    "THP_enabled" not in Path("/proc/self/status").read_text(encoding="ascii"),
    reason="this kernel does not say whether a process may have huge pages",
)
def test_a_worker_has_ordinary_pages_whatever_numpy_asks_for() -> None:
    pool = WorkerPool(LIMITS, OPERATIONS)
    worker, _ = pool.worker()
    said = str(run(worker, "answer = open('/proc/self/status', encoding='ascii').read()"))
    pool.close()
    assert "THP_enabled:\t0" in said
    assert "THP_enabled:\t1" in Path("/proc/self/status").read_text(encoding="ascii")


def test_the_pool_swaps_in_a_spare() -> None:
    pool = WorkerPool(LIMITS, OPERATIONS)
    first, new = pool.worker()
    assert new
    assert pool.worker() == (first, False)
    pool.discard()
    second, new = pool.worker()
    assert new
    assert second.pid != first.pid
    assert run(second, "answer = 1") == 1
    pool.close()
    assert wait_until(lambda: gone(second.pid))


def test_the_pool_survives_the_death_of_the_server() -> None:
    pool = WorkerPool(LIMITS, OPERATIONS)
    first, _ = pool.worker()
    assert run(first, "answer = 1") == 1
    server = fork_server().process
    server.kill()
    server.wait()
    assert wait_until(lambda: gone(first.pid)), "workers die with their server"
    second, new = pool.worker()
    assert new
    assert run(second, "answer = 2") == 2
    pool.close()


def test_ctrl_c_while_a_worker_is_forked_does_not_mix_up_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = WorkerPool(LIMITS, OPERATIONS)
    pool.worker()
    interrupted = fork_server()

    def interrupt() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted, "_reply", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Worker(LIMITS, OPERATIONS)
    monkeypatch.undo()
    assert not interrupted.alive()
    second, new = pool.worker()
    assert new
    assert run(second, "import os; answer = os.getpid()") == second.pid
    pool.close()


def test_a_pool_refuses_to_work_in_a_forked_child() -> None:
    pool = WorkerPool(LIMITS, OPERATIONS)
    pool._owner = -1
    with pytest.raises(EvaluationError, match="fork"):
        pool.worker()


PARENT = """
import os, sys, time
sys.path.insert(0, {tests!r})
from tirgym.harness.worker import Worker, WorkerLimits, fork_server

if __name__ == "__main__":
    made = [Worker(WorkerLimits(), 'probe:Probe') for _ in range(2)]
    made[0].call("probe", "answer = 1", timeout_s=60)
    print(fork_server().process.pid, *(w.pid for w in made), flush=True)
    if sys.argv[1] == "busy":
        made[0].call("probe", "while True: pass", timeout_s=600)
"""


@pytest.mark.parametrize(
    ("mode", "number"),
    [("busy", signal.SIGKILL), ("busy", signal.SIGINT), ("end", None)],
)
def test_a_parent_leaves_no_process_behind(tmp_path: Path, mode: str, number: int | None) -> None:
    script = tmp_path / "parent.py"
    tests = str(Path(__file__).parents[1])
    script.write_text(PARENT.replace("{tests!r}", repr(tests)))
    parent = subprocess.Popen(
        [sys.executable, str(script), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(text) for text in parent.stdout.readline().split()]
    assert len(pids) == 3
    if number is not None:
        time.sleep(0.2)
        os.kill(parent.pid, number)
    parent.wait(60)
    assert wait_until(lambda: all(gone(pid) for pid in pids)), [p for p in pids if not gone(p)]


def test_channel_deadline_counts_from_the_call() -> None:
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    with theirs:
        theirs.sendall(b"\x01\x00")  # half a header
        with pytest.raises(DeadlineError):
            channel.receive(timeout_s=0.05)
    channel.close()


def test_channel_says_when_the_other_end_is_gone() -> None:
    mine, theirs = socket.socketpair()
    channel, other = Channel(mine), Channel(theirs)
    other.send({"a": [1, 2]})
    assert channel.receive() == {"a": [1, 2]}
    other.close()
    with pytest.raises(WorkerDiedError):
        channel.receive()
    with pytest.raises(WorkerDiedError):
        channel.send("nobody listens")
    channel.close()


def test_the_file_lock_excludes_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = f"""
        from tirgym.harness.file_lock import FileLock
        held = FileLock({path!r})
        held.__enter__()
        answer = held.waited_s
    """
    holder = Worker(LIMITS, OPERATIONS)
    assert isinstance(run(holder, code), float)
    timer = threading.Timer(0.3, holder.kill)
    timer.start()
    with FileLock(path) as lock:
        assert lock.waited_s > 0.1
    timer.join()


def test_workers_leave_torch_to_those_who_ask_for_it(worker: Worker) -> None:
    pytest.importorskip("torch")
    code = """
        import sys
        before = "torch" in sys.modules
        import torch
        answer = (before, float(torch.ones(2).sum()))
    """
    assert run(worker, code) == (False, 2.0)


def test_the_fork_server_starts_early_where_something_will_be_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    monkeypatch.setattr(worker_module, "fork_server", lambda: started.append("server"))
    prestart_workers("triton")
    assert started == []
    prestart_workers("llvm")
    assert started == ["server"]
