"""What is read from a folder, and what damage is survived."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy import ToyEvaluator, Turn, toy_start

from tirgym.errors import InvalidValueError
from tirgym.harness.decision_graph import read_runs
from tirgym.harness.run_record import RunRecord
from tirgym.harness.trace import Trace, TraceResult


def record(folder: Path, agent: str, lines: int) -> Path:
    made = RunRecord(folder, agent, 0)
    for number in range(lines):
        made.record(toy_start(), ToyEvaluator().evaluate(toy_start()), predicted_us=float(number))
    made.close()
    assert made.path is not None
    return made.path


def test_several_runs_come_in_the_order_of_names_and_lines(tmp_path: Path) -> None:
    record(tmp_path, "b", 2)
    record(tmp_path, "a", 2)
    runs = read_runs(tmp_path)
    assert [(visit.run, visit.predicted_us) for visit in runs.visits] == [
        ("a-seed0", 0.0), ("a-seed0", 1.0), ("b-seed0", 0.0), ("b-seed0", 1.0),
    ]  # fmt: skip
    assert runs.warnings == ()


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_is_left_out_with_one_warning(tmp_path: Path, left: int) -> None:
    path = record(tmp_path, "a", 3)
    *first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(first) + last.rstrip()[:left])
    runs = read_runs(tmp_path)
    assert len(runs.visits) == 2
    assert runs.warnings == ("a-seed0.jsonl: the last line is torn and left out",)


def test_a_last_line_without_its_end_of_line_is_whole(tmp_path: Path) -> None:
    path = record(tmp_path, "a", 3)
    path.write_bytes(path.read_bytes().rstrip())
    runs = read_runs(tmp_path)
    assert (len(runs.visits), runs.warnings) == (3, ())


def test_other_damage_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = record(tmp_path, "a", 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1], lines[2] = b"\xff\xfe\n", b"[]\n"
    path.write_bytes(b"".join(lines))
    runs = read_runs(tmp_path)
    assert len(runs.visits) == 2
    (warning,) = runs.warnings
    assert warning.startswith("a-seed0.jsonl: 2 lines are left out")


def test_a_trace_is_one_visit_with_its_number_if_it_passed(tmp_path: Path) -> None:
    made = toy_start().apply(Turn(0, 4))
    results = {
        "passed": TraceResult("passed", 3.0, (2.9, 3.1), 30.0, 10.0),
        "unverified": TraceResult("unverified", 4.0),
        "crashed": TraceResult("crash"),
        "none": None,
    }
    for name, result in results.items():
        steps = tuple(map(str, made.steps))
        Trace(
            made.workload.uri, made.target, steps, made.ir_key, "code", agent="beam", result=result
        ).save(tmp_path / f"{name}.json")
    visits = {visit.run: visit for visit in read_runs(tmp_path).visits}
    assert {name: visit.speedup for name, visit in visits.items()} == {
        "passed": 3.0, "unverified": None, "crashed": None, "none": None,
    }  # fmt: skip
    one = visits["passed"]
    assert (one.status, one.level, one.latency_us, one.agent) == ("passed", "full", 10.0, "beam")
    assert one.before is None
    assert one.transforms == ("Turn(dial=0, by=4)",)
    assert visits["unverified"].status == ""


def test_other_files_are_left_out_and_json_ones_named(tmp_path: Path) -> None:
    record(tmp_path, "a", 1)
    (tmp_path / "graph.html").write_text("<p>")
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "folder.jsonl").mkdir()
    runs = read_runs(tmp_path)
    assert len(runs.visits) == 1
    (warning,) = runs.warnings
    assert warning.startswith("notes.json is left out")


def test_nothing_to_read_says_what_would_be_accepted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "a.jsonl").write_text("{")
    for name, problem in {
        "none": "no such folder",
        "file": "a file",
        "empty": "--record DIR",
        "torn": "torn",
    }.items():
        with pytest.raises(InvalidValueError, match=problem):
            read_runs(tmp_path / name)
