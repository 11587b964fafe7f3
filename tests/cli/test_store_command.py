"""`tirgym store`: what it shows, packs and refuses. `record` is tested as `model record` too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import fill_with_walks
from small import SMALL, TARGET

from tirgym.harness.hardware import cpu_model, fingerprint
from tirgym.harness.shipped_store import unpack
from tirgym.harness.store import Store

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with walks of two kernels."""
    path = tmp_path_factory.mktemp("store") / "store.sqlite"
    store = Store(path)
    fill_with_walks(store, [SMALL["add"], SMALL["softmax"]], 4)
    store.close()
    return path


def test_show_says_machine_target_versions_and_counts(cli: Cli, path: Path) -> None:
    said = cli("store", "show", path, "--json").json()
    (origin,) = said["recorded"]
    assert (origin["machine"], origin["target"]) == (fingerprint(), str(TARGET))
    assert "apache-tvm=" in origin["compiler"]
    assert said["verdicts"] == {"passed": 8}
    assert [row["split"] for row in said["workloads"]] == ["train", "val"]
    table = cli("store", "show", path)
    assert table.code == 0
    assert "8 verdicts: 8 passed; 8 walks" in table.out


def test_export_packs_a_store_that_unpacks_to_the_same(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "mine.sqlite.xz"
    said = cli("store", "export", out, "--store", path, "--json").json()
    assert (said["verdicts"], said["walks"], said["kernels"]) == ({"passed": 8}, 8, 2)
    assert said["bytes"] == out.stat().st_size
    made = unpack(out, tmp_path)
    shown = cli("store", "show", made, "--json").json()
    assert shown["walks"] == 8
    assert shown["recorded"][0]["cpu"] == cpu_model()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nowhere.sqlite"), "no such file"),
        (("export", "mine.sqlite"), "ends in .sqlite.xz"),
        (("export", "{tmp}/a.sqlite.xz", "--store", "{store}", "--machine", "x"), "machine"),
        (("export", "{tmp}/a.sqlite.xz", "--store", "{store}", "--threads", "2"), "target"),
        (("record", "--searched", "-1"), "--searched"),
        (("record", "--space", "transforms"), "both, decision"),
        (("record", "--suite", "core-v9"), "core-v0"),
        (("record", "--agent", "greedy"), "space of agent greedy"),
        (("record", "--agent", "nobody"), "evolutionary"),
        (("record", SMALL["add"], "--store", "core-v0"), "a path"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    cli: Cli, path: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    filled = [text.format(tmp=tmp_path, store=path) for text in arguments]
    done = cli("store", *filled)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert said in done.err
    assert not list(tmp_path.iterdir())


def test_record_searches_on_top_and_goes_on_where_it_stopped(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    numbers = ("--programs", "3", "--searched", "2", "--space", "decision")
    command = ("store", "record", SMALL["add"], *numbers, "--store", path, "--json")
    first = cli(*command)
    assert first.code == 0, first.err
    assert sum(first.json()["verdicts"].values()) == 5
    (context,) = Store(path).contexts()
    walks = Store(path).walks(context)
    assert {"static", "random", "search"} <= {walk.source.split()[0] for walk in walks}
    records = list(Store(path).records())
    again = cli(*command).json()
    assert again["programs"] == 3
    assert [r for r in records if r.measurement] == [
        r for r in Store(path).records() if r.measurement and r in records
    ]


@pytest.mark.slow
def test_a_recording_that_is_killed_loses_at_most_what_was_under_way(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "store.sqlite"
    numbers = ("--programs", "8", "--space", "decision", "--store", str(path))
    command = ("store", "record", SMALL["add"], *numbers)
    running = subprocess.Popen([sys.executable, "-m", "tirgym", *command], start_new_session=True)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (path.exists() and len(Store(path)) >= 2):
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    (context,) = Store(path).contexts()
    kept = {walk.path for walk in Store(path).walks(context) if walk.settled}
    records = [record for record in Store(path).records() if record.measurement]
    assert len(kept) >= 1
    done = cli(*command, "--json")
    assert done.code == 0, done.err
    assert done.json()["programs"] == 8
    assert done.json()["reused"] >= len(kept)
    assert [r for r in Store(path).records() if r in records] == records
