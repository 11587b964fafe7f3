"""`tirgym profile`: the static part always, the rest where the program can run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import verdict

from tirgym.cli import profile
from tirgym.harness.counters import Counters
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace

Cli = Callable[..., Any]
SHAPE = ("-s", "m=48,n=48,k=48")


def test_profile_of_a_kernel(cli: Cli) -> None:
    done = cli("profile", "matmul", *SHAPE, "--json")
    assert done.code == 0, done.err
    record = done.json()
    assert record["profile"]["useful_flops"] == 2 * 48**3
    assert record["profile"]["compulsory_bytes"] == 3 * 48 * 48 * 4
    assert record["profile"]["mix"]["total"] > 0
    assert record["evaluation"]["status"] == "passed"
    assert record["roofline"]["fraction"] > 0.0
    assert bool(record["counters"]) == (record["counters_unavailable"] is None)


def test_a_trace_that_vectorizes(cli: Cli, tmp_path: Path) -> None:
    arch = cli("show", "add", "--json").json()["target"]
    uri = "tirgym://core-v0/add?m=8&n=32&dtype=float32"
    transforms = ("Split(loop=1, factor=16)", "Vectorize(loop=2)")
    Trace(uri, Target("llvm", arch), transforms).save(tmp_path / "t.json")
    done = cli("profile", tmp_path / "t.json", "--no-run")
    assert (done.code, done.err) == (0, "")
    assert "100% of the work, 16 lanes" in done.out
    assert "roofline" not in done.out


def test_counters_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counters({"cycles": 1000.0, "instructions": 2500.0}, 1)
    monkeypatch.setattr(profile, "_count", lambda program: counted)
    done = cli("profile", "matmul", *SHAPE)
    assert done.code == 0
    assert "2,500" in done.out
    assert "2.50" in done.out


def test_another_target_is_not_run(cli: Cli) -> None:
    done = cli("profile", "add", "-s", "tiny", "--arch", "x86-64", "--json")
    assert done.code == 0
    assert "was not run" in done.err
    assert done.json()["evaluation"] is None


def test_a_program_without_a_pass_has_no_place(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_evaluate", lambda program: verdict(Status.CRASH))
    done = cli("profile", "add", "-s", "tiny", "--json")
    assert done.code == 1
    assert (done.json()["roofline"], done.json()["counters"]) == (None, {})
    assert "crash" in done.err
