"""`tirgym bench`: a person's path, and one clear line for each thing that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boards import ADD, measured, record

from tirgym.benchmarks.leaderboard import verifying
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line

Cli = Callable[..., Any]


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A board of two searches that is not verified yet, and quick processes to verify it."""
    folder = BoardFolder(tmp_path / "board")
    for agent in ("beam", "mcts"):
        append_line(folder.records_path, record(agent).to_json())
    monkeypatch.setattr(verifying.verify_board, "__defaults__", (lambda step: None, measured()))
    return folder.path


def test_references_are_run_verified_and_reported(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "board"
    command = ("bench", "run", "--agents", "noop,default a/a", "--workload", ADD, "--out", out)
    ran = cli(*command, "--trials", "4,2", "--seeds", "2", "--json")
    assert ran.code == 0, ran.err
    assert ran.json()["outcomes"] == {"finished": 6}
    assert "6 of 6: a/a on add(m=8, n=16), seed 1" in ran.err
    assert json.loads((out / "plan.json").read_text())["trials"] == [2, 4]
    again = cli(*command, "--trials", "2,4", "--seeds", "2", "--json")
    assert again.json()["records"] == 6  # nothing was left to do


def test_two_jobs_make_the_same_board(cli: Cli, tmp_path: Path) -> None:
    """Programs apart run, verify and report: what they found is that of one process."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core: two jobs are refused")
    command = ("bench", "run", "--agents", "noop,greedy", "--workload", ADD, "--trials", "2")
    outs = [tmp_path / "one", tmp_path / "two"]
    for jobs, out in enumerate(outs, 1):
        ran = cli(*command, "--seeds", jobs, "--out", out, "--jobs", jobs)
        assert ran.code == 0, ran.err
        verified = cli("bench", "verify", out, "--sessions", "1", "--jobs", jobs, "--json")
        assert verified.code == 0, verified.err
        assert verified.json()["answers"] == {"verified": 2 * jobs}
    one, two = (
        {r.key: [p.code_key for p in r.curve] for r in BoardFolder(out).records()[0]}
        for out in outs
    )
    assert one.items() <= two.items()
    assert len(two) == 2 * len(one)
    report = cli("bench", "report", outs[1], "--no-steps")
    assert "Up to 2 searches ran at once" in report.out
    assert "Up to 2 processes verified at once" in report.out
    assert "at once" not in cli("bench", "report", outs[0], "--no-steps").out


def test_verify_and_report(cli: Cli, board: Path) -> None:
    verified = cli("bench", "verify", board, "--sessions", "2", "--json")
    assert verified.code == 0, verified.err
    assert verified.json()["answers"] == {"verified": 4}
    report = cli("bench", "report", board, "--no-steps")
    assert report.code == 0, report.err
    assert "## Ranking at 4 trials" in report.out
    made = json.loads((board / "board.json").read_text())
    assert {row["agent"] for row in made["rankings"]["2"]} == {"beam", "mcts"}
    told = cli("bench", "report", board, "--no-steps", "--json").json()
    assert told["counts"]["verified"] == 4


def test_report_writes_a_website(cli: Cli, board: Path, tmp_path: Path) -> None:
    assert cli("bench", "verify", board, "--sessions", "2").code == 0
    report = cli("bench", "report", board, "--no-steps", "--site", tmp_path / "site", "--json")
    assert report.code == 0, report.err
    pages = {"index.html", "compare.html", "kernels/add.html"}
    assert {str(tmp_path / "site" / page) for page in pages} < set(report.json()["files"])
    assert "beam" in (tmp_path / "site" / "index.html").read_text()


def test_an_answer_that_does_not_reproduce_is_named_and_the_exit_code_says_so(
    cli: Cli, board: Path
) -> None:
    (board / "plan.json").write_text(
        json.dumps({"format": "tirgym-bench-plan-1", "agents": ["beam", "mcts", "random"],
                    "workloads": [ADD], "trials": [2, 4], "seeds": [0]})
    )  # fmt: skip
    verified = cli("bench", "verify", board)
    assert verified.code == 1
    assert "4 of 6 answers verified" in verified.out
    assert "there is no record" in verified.out


def test_good_rows_are_kept_beside_damage(cli: Cli, board: Path) -> None:
    with (board / "records.jsonl").open("a") as file:
        file.write('{"format": "tirgym-bench-1", "age')
    verified = cli("bench", "verify", board, "--json")
    assert (verified.code, verified.json()["answers"]) == (1, {"verified": 4})
    assert "records.jsonl:3: not a JSON object" in verified.err
    report = cli("bench", "report", board, "--no-steps", "--json")
    assert (report.code, report.json()["counts"]["verified"]) == (1, 4)


CASES: dict[str, tuple[list[str], str]] = {
    "agent": (["run", "--agents", "beem", "--out", "{tmp}/b"], "did you mean 'beam'"),
    "option": (["run", "--agents", "mcts,bach=3", "--out", "{tmp}/b"], "option of agent mcts"),
    "suite": (["run", "--suite", "core-v9", "--out", "{tmp}/b"], "core-v0"),
    "both": (
        ["run", "--suite", "core-v0", "--workload", "add", "--out", "{tmp}/b"],
        "one of the two",
    ),
    "workload": (["run", "--workload", "matmull", "--out", "{tmp}/b"], "did you mean 'matmul'"),
    "trials": (["run", "--trials", "0,4", "--out", "{tmp}/b"], "such as 16,64"),
    "words": (["run", "--trials", "many", "--out", "{tmp}/b"], "such as 16,64"),
    "seeds": (["run", "--seeds", "0", "--out", "{tmp}/b"], "--seeds"),
    "seconds": (["run", "--seconds", "-1", "--out", "{tmp}/b"], "positive"),
    "no jobs": (["run", "--jobs", "0", "--out", "{tmp}/b"], "each has its own cores"),
    "many jobs": (["run", "--jobs", "4096", "--out", "{tmp}/b"], "each has its own cores"),
    "no folder": (["run"], "--out"),
    "verify nothing": (["verify", "{tmp}/none"], "bench run --out"),
    "verify an empty folder": (["verify", "{tmp}"], "bench run --out"),
    "report nothing": (["report", "{tmp}/none"], "bench run --out"),
    "submission": (["check-submission", "{tmp}/none"], "a folder with traces"),
    "command": (["bnech"], "check-submission"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_bad_usage_is_one_line_and_writes_nothing(name: str, cli: Cli, tmp_path: Path) -> None:
    words, says = CASES[name]
    done = cli("bench", *(word.format(tmp=tmp_path) for word in words))
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_other_conditions_than_those_of_the_folder_are_refused(cli: Cli, tmp_path: Path) -> None:
    command = ("bench", "run", "--agents", "noop", "--workload", ADD, "--out", tmp_path / "b")
    assert cli(*command, "--trials", "2,4").code == 0
    other = cli(*command, "--trials", "8")
    assert other.code == 2
    assert "2,4, as in the folder" in other.err
    limited = cli(*command, "--trials", "2,4", "--seconds", "60")
    assert limited.code == 2
    assert "none, as in the folder" in limited.err


def test_a_submission_is_reported_row_by_row(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "half.json").write_text("{")
    found = cli("bench", "check-submission", tmp_path, "--sessions", "0", "--json")
    assert found.code == 1
    assert found.json()["rows"][0]["ok"] is False
    table = cli("bench", "check-submission", tmp_path, "--sessions", "0")
    assert "refused" in table.out
    assert "half.json" in table.out


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    """SIGKILL at any moment, for real: in the end every row is there once."""
    out = tmp_path / "board"
    command = [
        sys.executable, "-m", "tirgym", "bench", "run", "--agents", "noop,default,a/a",
        "--seeds", "4", "--trials", "2", "--out", str(out),
    ]  # fmt: skip
    lengths = []
    for rounds in range(6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began, folder = time.monotonic(), BoardFolder(out)
        while process.poll() is None and rounds < 5:
            lines = folder.records_path.read_bytes() if folder.records_path.exists() else b""
            if lines.count(b"\n") > 80 * (rounds + 1) or time.monotonic() - began > 60.0:
                process.kill()
        process.wait()
        lengths.append(len(folder.records()[0]))
    records, problems = folder.records()
    plan = folder.plan()
    assert plan is not None
    assert {r.key for r in records} == set(plan.rows())
    assert len(records) == 3 * len(plan.workloads) * 4
    assert problems == []
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("command", ["verify", "report", "compare"])
def test_a_folder_of_others_runs_no_file(cli: Cli, command: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n")
    folder = BoardFolder(tmp_path / "board")
    uri = f"tirgym://local/{tmp_path}/mine.p%79:K?n=1"
    append_line(folder.records_path, record(uri=uri).to_json())
    refused = cli("bench", command, folder.path)
    assert (refused.code, refused.out) == (2, "")
    assert "--files lets Python files be run" in refused.err
    assert not ran.exists()
    cli("bench", command, folder.path, "--files")
    assert ran.exists()
