"""`tirgym doctor`: real findings here, and the failures that it must notice."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from fakes import verdict

from tirgym.cli import doctor
from tirgym.errors import EvaluationError
from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status

Cli = Callable[..., Any]


def by_name(record: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Checks by their name."""
    return {check["check"]: check for check in record["checks"]}


def test_this_installation_works(cli: Cli) -> None:
    done = cli("doctor", "--json")
    record = done.json()
    assert (done.code, record["ok"]) == (0, True), record
    checks = by_name(record)
    for name in ("python", "apache-tvm", "apache-tvm-ffi", "backend llvm", "store"):
        assert checks[name]["status"] == "ok", checks[name]
    assert checks["build, gate, time"]["status"] in ("ok", "note")
    assert {"extra plot", "extra rl", "C compiler", "hardware counters", "threads"} <= set(checks)
    for check in checks.values():
        assert bool(check["remedy"]) == (check["status"] != "ok"), check


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the check of the core."""
    monkeypatch.setattr(doctor, "_core", lambda: doctor.Finding("core", "ok", ""))


@pytest.mark.usefixtures("quick")
def test_one_line_each(cli: Cli) -> None:
    done = cli("doctor")
    assert done.code == 0
    assert len(done.out.splitlines()) == len(list(doctor.examine()))


@pytest.mark.usefixtures("quick")
def test_a_wrong_pin_fails_with_its_remedy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"apache-tvm-ffi": "0.1.15"}
    monkeypatch.setattr("tirgym.cli.doctor.version", lambda name: other.get(name) or version(name))
    done = cli("doctor")
    assert done.code == 1
    assert "failed  apache-tvm-ffi: 0.1.15: pip install 'apache-tvm-ffi==0.1.14.post1'" in done.out


@pytest.mark.usefixtures("quick")
def test_a_damaged_store_fails(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database" * 1000)
    monkeypatch.setenv("TIRGYM_HOME", str(tmp_path))
    done = cli("doctor", "--json")
    assert done.code == 1
    assert by_name(done.json())["store"]["status"] == "failed"


@pytest.mark.parametrize(
    ("status", "found", "code"),
    [(Status.WRONG_RESULT, "failed", 1), (Status.CRASH, "failed", 1), (Status.NOISY, "note", 0)],
)
def test_a_core_that_does_not_work_fails(
    status: Status, found: str, code: int, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompileHarness, "compile_and_benchmark", lambda self: verdict(status))
    done = cli("doctor", "--json")
    assert done.code == code
    assert by_name(done.json())["build, gate, time"]["status"] == found


def test_machinery_that_fails_is_a_finding(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: CompileHarness) -> None:
        raise EvaluationError("no worker")

    monkeypatch.setattr(CompileHarness, "compile_and_benchmark", fail)
    done = cli("doctor")
    assert done.code == 1
    assert "no worker" in done.out
