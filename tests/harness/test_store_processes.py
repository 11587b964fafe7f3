"""A store in many hands: processes and threads that write at once, kills, full disks."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from stored import CONTEXT, FIRST_LAYOUT, OLD_RECORD, in_process, passed

from tirgym.errors import EvaluationError
from tirgym.harness.evaluation import Level
from tirgym.harness.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.sqlite"


def test_concurrent_writers_agree_on_one_number(path: Path) -> None:
    code = """
for i in range(60):
    held = store.put(passed(f"code {i}", speedup=float(sys.argv[1]) if len(sys.argv) > 1 else %d))
    print(held.measurement.speedup)
"""
    writers = [in_process(path, code % speedup) for speedup in (2, 3, 4)]
    answers = [w.communicate(timeout=120)[0].split() for w in writers]
    assert [w.returncode for w in writers] == [0, 0, 0]
    assert answers[0] == answers[1] == answers[2]
    assert len(Store(path)) == 60


_OPENER = """
import sys
from tirgym.errors import EvaluationError
from tirgym.harness.store import Store
print("ready", flush=True)
for line in sys.stdin:
    try:
        Store(line.strip()).close()
        print("opened", flush=True)
    except EvaluationError as error:
        print(error, flush=True)
"""


def test_many_processes_make_a_store_at_once_again_and_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OPENER]
    openers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    pipes = [(p.stdin, p.stdout) for p in openers if p.stdin and p.stdout]
    assert [answers.readline() for _, answers in pipes] == ["ready\n"] * 6
    failed: list[str] = []
    for number in range(100):
        for asked, _ in pipes:
            asked.write(f"{tmp_path / str(number)}\n")
        for asked, _ in pipes:
            asked.flush()
        failed += [said for _, answers in pipes if (said := answers.readline()) != "opened\n"]
    for opener in openers:
        opener.communicate()
    assert failed == []


def reader_of(path: Path) -> sqlite3.Connection:
    """In the midst of reading a database that is not in WAL yet; no store can be made of it now."""
    path.parent.mkdir(exist_ok=True)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.executescript(FIRST_LAYOUT)
    database.execute("BEGIN")
    database.execute("SELECT * FROM meta").fetchall()
    return database


def test_opening_waits_for_a_lock_that_sqlite_does_not_wait_for(path: Path) -> None:
    reader = reader_of(path)
    end = threading.Timer(0.3, reader.close)
    end.start()
    assert list(Store(path).records()) == [OLD_RECORD]
    end.join()


def test_opening_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirgym.harness.store._BUSY_S", 0.2)
    reader = reader_of(path)
    with pytest.raises(EvaluationError, match="database is locked"):
        Store(path)
    reader.close()
    assert list(Store(path).records()) == [OLD_RECORD]


def test_threads_share_one_store(path: Path) -> None:
    store = Store(path)
    found: list[float] = []

    def write(speedup: float) -> None:
        for i in range(30):
            held = store.put(passed(f"code {i}", speedup))
            assert held.measurement is not None
            found.append(held.measurement.speedup)

    threads = [threading.Thread(target=write, args=(float(n),)) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 30
    assert len(found) == 60


def test_what_was_answered_survives_a_kill(path: Path) -> None:
    writer = in_process(
        path,
        """
i = 0
while True:
    store.put_transforms(CONTEXT, f"ir {i}", ("Unroll(loop=0)",) * i)
    store.put(passed(f"code {i}"))
    print(i, flush=True)
    i += 1
""",
    )
    assert writer.stdout is not None
    last = -1
    deadline = time.monotonic() + 60
    while last < 50 and time.monotonic() < deadline:
        last = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read().split("\n")
    writer.wait()
    writer.stdout.close()
    last = max([last, *(int(line) for line in rest[:-1] if line)])
    store = Store(path)
    assert all(
        store.get(CONTEXT, f"code {i}", Level.TRAINING) == passed(f"code {i}") for i in range(last)
    )
    assert all(len(store.transforms(CONTEXT, f"ir {i}") or ()) == i for i in range(last))
    assert store.put(passed("later")) == passed("later")


def test_a_full_disk_is_said_and_loses_nothing(path: Path) -> None:
    """A limit on the size of files stands for the disk: the system refuses to write in both."""
    writer = in_process(
        path,
        """
import resource
from tirgym.errors import EvaluationError
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
written = 0
try:
    for i in range(100_000):
        store.put(passed(f"code {i}"))
        written += 1
except EvaluationError as error:
    print(written)
    print(error)
""",
    )
    out, _ = writer.communicate(timeout=120)
    written, message = out.split("\n")[:2]
    assert int(written) > 10
    assert "what was stored before is safe" in message
    store = Store(path)
    assert len(store) >= int(written)
    assert all(r == passed(r.key) for r in store.records())
    assert store.put(passed("later")) == passed("later")
