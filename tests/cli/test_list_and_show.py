"""`tirgym list` and `tirgym show`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import list_kernels, load_workload, split_of

Cli = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]


def test_list_kernels_is_the_table(cli: Cli) -> None:
    rows = cli("list", "--json").json()["kernels"]
    assert [row["kernel"] for row in rows] == [kernel.name for kernel in list_kernels()]
    for row in rows:
        assert load_workload(row["uri"]).shape == row["shape"]


def test_a_narrow_terminal_cuts_no_uri(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tirgym.cli.output.result_console", lambda: Console(file=sys.stdout, width=40)
    )
    text = cli("list").out
    for kernel in list_kernels():
        assert Workload.of(kernel).uri in text


def test_list_by_suite_and_split(cli: Cli) -> None:
    for split in Split:
        rows = cli("list", "--suite", "core-v0", "--split", split, "--json").json()["kernels"]
        expected = [k.name for k in list_kernels("core-v0") if split_of(k) is split]
        assert [row["kernel"] for row in rows] == expected


@pytest.mark.parametrize(
    ("what", "column", "name"),
    [
        ("suites", "suite", "core-v0"),
        ("agents", "agent", "beam"),
        ("backends", "backend", "llvm"),
        ("transforms", "transform", "Split"),
        ("macros", "macro", "MultiLevelTile"),
        ("environments", "environment", "tirgym/Schedule-v0"),
    ],
)
def test_other_lists(what: str, column: str, name: str, cli: Cli) -> None:
    rows = cli("list", what, "--json").json()[what]
    assert name in [row[column] for row in rows]
    assert name in cli("list", what).out


def test_backends_say_whether_they_work(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from tirgym.harness import backend

    class Missing:
        name, levels = "missing", ("tir",)

        def why_unavailable(self) -> str:
            return "backend missing: no such device"

    rows = cli("list", "backends", "--json").json()["backends"]
    assert {row["backend"]: row["status"] for row in rows}["llvm"] == "available"
    monkeypatch.setitem(backend.BACKENDS, "missing", f"{__name__}:Missing")
    monkeypatch.setattr(sys.modules[__name__], "Missing", Missing, raising=False)
    rows = cli("list", "backends", "--json").json()["backends"]
    status = {row["backend"]: row["status"] for row in rows}["missing"]
    assert status == "not available: backend missing: no such device"


def test_transforms_outside_the_vocabularies_say_why(cli: Cli) -> None:
    rows = cli("list", "transforms", "--json").json()["transforms"]
    assert all(bool(row["vocabularies"]) != bool(row["note"]) for row in rows)
    notes = {row["transform"]: row["note"] for row in rows}
    assert "changes results" in notes["StorePrecision"]


@pytest.mark.parametrize("kernel", ["matmul", "core-v0/matmul"])
def test_a_kernel_s_name_is_the_kernel_whatever_lies_here(
    kernel: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "core-v0").mkdir()
    (tmp_path / kernel).write_text("no trace")
    done = cli("show", kernel, "-s", "tiny")
    assert done.code == 0
    assert f"{kernel} is the kernel of that name; write ./{kernel} for the file" in done.err
    as_file = cli("show", f"./{kernel}")
    assert as_file.code == 2
    assert "not a readable trace" in as_file.err


def test_a_trace_may_have_any_other_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = cli("show", "add", "-s", "tiny", "--json").json()
    from tirgym.harness.target import Target

    Trace(record["workload"], Target("llvm", record["target"]), ()).save("best")
    done = cli("show", "best")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("tir", "T.sblock("),
        ("lowered", "def main("),
        ("llvm", "define "),
        ("asm", ".globl"),
        ("passes", "LowerTVMBuiltin"),
    ],
)
def test_levels(level: str, expected: str, cli: Cli) -> None:
    done = cli("show", "matmul", "-s", "tiny", "--level", level)
    assert (done.code, done.err) == (0, "")
    assert expected in done.out


def test_json_has_text_and_target(cli: Cli) -> None:
    record = cli("show", "matmul", "-s", "m=6,n=7", "-s", "k=5", "--json").json()
    assert record["workload"] == "tirgym://core-v0/matmul?m=6&n=7&k=5&dtype=float32"
    assert "(6, 7)" in record["text"]
    assert (record["backend"], record["num_threads"], record["level"]) == ("llvm", 1, "tir")


def test_passes_have_time_and_ir_before_and_after(cli: Cli) -> None:
    passes = cli("show", "softmax", "-s", "tiny", "--level", "passes", "--json").json()["passes"]
    assert len(passes) > 20
    assert all(record["ms"] >= 0.0 for record in passes)
    for record, following in pairwise(passes):
        assert record["changed"] == (record["before"] != record["after"])
        assert record["after"] == following["before"]
    assert any(record["changed"] for record in passes)


def test_kernel_by_uri_and_by_file(cli: Cli) -> None:
    by_uri = cli("show", "tirgym://core-v0/softmax?m=3&n=5&dtype=float32")
    assert "(3, 5)" in by_uri.out
    by_file = cli("show", f"{ROOT}/examples/my_kernel.py:my_kernel", "-s", "n=9")
    assert "(9, 9)" in by_file.out


def test_trace_is_shown_as_its_program(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    target = cli("show", "matmul", "--json").json()["target"]
    from tirgym.harness.target import Target

    uri = "tirgym://core-v0/matmul?m=8&n=8&k=8&dtype=float32"
    Trace(uri, Target("llvm", target), ("Split(loop=0, factor=2)",)).save(path)
    done = cli("show", path)
    assert done.err == ""
    assert "T.grid(4, 2, 8, 8)" in done.out
    other = cli("show", path, "--arch", "x86-64")
    assert other.code == 0
    assert "warning" in other.err
