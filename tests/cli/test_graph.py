"""`optimize --record` for real on a small kernel, and `tirgym graph` on what it kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tirgym.harness.decision_graph import build_graph, read_runs
from tirgym.harness.replay import replay_steps
from tirgym.harness.run_record import Visit
from tirgym.harness.trace import Trace

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run and its trace."""
    runs = tmp_path_factory.mktemp("graph") / "runs"
    arguments = ["optimize", "add", "-s", "tiny", "--agent", "random", "--trials", "4"]
    files = ["--record", str(runs), "--out", str(runs / "best.json"), "--json"]
    command = [sys.executable, "-m", "tirgym", *arguments, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["record_file"] == str(runs / "random-seed0.jsonl")
    return runs


def test_the_record_holds_the_search(folder: Path) -> None:
    lines = (folder / "random-seed0.jsonl").read_text().splitlines()
    visits = [Visit.from_json(line) for line in lines]
    assert visits[0].transforms == ()
    assert {visit.agent for visit in visits} == {"random"}
    assert {visit.level for visit in visits} == {"training", "full"}
    assert (
        sum(visit.before is None for visit in visits) >= 5
    )  # the unscheduled program and 4 trials


def test_the_summary_tells_the_best_path_that_replays(folder: Path, cli: Cli) -> None:
    told = cli("graph", folder, "--json").json()
    visits = read_runs(folder).visits
    keys = set()
    for visit in (visit for visit in visits if visit.before is None):
        trace = Trace(visit.workload, visit.target, visit.transforms)
        keys |= {program.ir_key for program in replay_steps(trace)}
    assert told["states"] == told["ir_states"] == len(keys)
    (root,) = told["roots"]
    passed = [visit for visit in visits if visit.status == "passed"]
    assert root["best_speedup"] in {visit.speedup for visit in passed}
    transforms = tuple(text for step in root["best_path"] for text in step["transforms"])
    *_, last = replay_steps(Trace(root["workload"], visits[0].target, transforms))
    assert root["best"] == f"0:{last.ir_key}"
    assert sum(told["statuses"].values()) == told["states"]
    assert len(root["frontier"]) == 5
    assert all(ahead["untried"] or ahead["kind"] == "unmeasured" for ahead in root["frontier"])
    assert told["file"] is None
    assert told["warnings"] == []


@pytest.mark.parametrize(
    ("name", "more", "begins"),
    [
        ("g.html", (), "<!DOCTYPE html>"),
        ("g.json", (), '{"edges"'),
        ("g.graphml", (), "<?xml"),
        ("g.txt", ("--format", "dot"), "digraph"),
    ],
)
def test_every_format_is_written(
    folder: Path, cli: Cli, tmp_path: Path, name: str, more: tuple[str, ...], begins: str
) -> None:
    done = cli("graph", folder, "-o", tmp_path / name, *more, "--frontier", 0)
    assert done.code == 0, done.err
    assert (tmp_path / name).read_text().startswith(begins)
    assert str(tmp_path / name) in done.out


def test_for_people(folder: Path, cli: Cli) -> None:
    done = cli("graph", folder, "--trace", folder / "best.json")
    assert done.code == 0
    for words in ("best path: ", "frontier, most promising first", "passed", "step by step"):
        assert words in done.out
    assert "not saved" in done.out


def test_measuring_the_way_of_a_trace(folder: Path, cli: Cli) -> None:
    trace = Trace.load(folder / "best.json")
    told = cli("graph", folder, "--trace", folder / "best.json", "--measure", "--json").json()
    steps = told["lost_time"]["steps"]
    assert [step["transform"] for step in steps] == list(trace.transforms)
    assert {step["gain_from"] for step in steps} <= {"measured", "attributed", "static"}


def test_a_torn_line_is_one_warning(folder: Path, cli: Cli, tmp_path: Path) -> None:
    whole = (folder / "random-seed0.jsonl").read_bytes()
    (tmp_path / "torn.jsonl").write_bytes(whole + whole[:100])
    done = cli("graph", tmp_path, "--json")
    assert done.code == 0
    assert done.err == "tirgym: warning: torn.jsonl: the last line is torn and left out\n"
    assert done.json()["states"] == len(build_graph(read_runs(tmp_path)).states)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["graph"], "DIR"),
        (["graph", "{tmp}/none"], "no such folder"),
        (["graph", "{tmp}"], "--record DIR"),
        (["graph", "{runs}", "-o", "{tmp}/g.png"], ".html, .json, .graphml, .dot"),
        (["graph", "{runs}", "-o", "{tmp}/g", "--format", "htlm"], "did you mean 'html'"),
        (["graph", "{runs}", "-o", "{tmp}"], "a file name ending in"),
        (["graph", "{runs}", "--format", "dot"], "--out FILE"),
        (["graph", "{runs}", "--measure"], "--trace TRACE"),
        (["graph", "{runs}", "--frontier", "-1"], "at least 0"),
        (["graph", "{runs}", "--trace", "{tmp}/none.json"], "no such file"),
        (["optimize", "add", "--record", "{tmp}/file"], "--record"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    folder: Path, cli: Cli, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "file").touch()
    done = cli(*(text.format(tmp=tmp_path, runs=folder) for text in arguments))
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_with_other_kernels_only_says_why(cli: Cli, tmp_path: Path) -> None:
    from tirgym.harness.target import Target

    trace = Trace("tirgym://core-v0/matmull", Target("llvm", "skylake-avx512"), ())
    trace.save(tmp_path / "t.json")
    done = cli("graph", tmp_path)
    assert done.code == 2
    assert "did you mean 'matmul'" in done.err
