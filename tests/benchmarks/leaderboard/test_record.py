"""Records and their files: the format round-trips, good lines are kept, nothing is lost to a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from boards import ADD, SUM, claimed, record

from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan, append_line, read_lines
from tirgym.benchmarks.leaderboard.record import FORMAT, Saw, SawWhat, parse_record
from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError


def test_a_record_is_one_line_that_parses_back() -> None:
    made = record(seed=3, seconds=2.5, saw=Saw(SawWhat.MODEL, ("matmul",), "m"))
    text = made.to_json()
    assert "\n" not in text
    assert json.loads(text)["format"] == FORMAT
    assert parse_record(text) == made


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "tirgym-bench-9"}, "tirgym-bench-9"),
        ({"seed": "one"}, "field seed"),
        ({"kind": "winner"}, "field kind"),
        ({"curve": [{"trial": 1}]}, "field curve"),
        ({"answers": [{"trials": 2, "recipe": {"kind": "code"}}]}, "field answers.0.recipe.kind"),
    ],
)
def test_what_is_no_record_says_where(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_record(json.dumps({**json.loads(record().to_json()), **change}))


def test_unknown_fields_are_for_later_versions() -> None:
    data = {**json.loads(record().to_json()), "colour": "blue"}
    assert parse_record(json.dumps(data)) == record(made=data["made"])


def test_good_lines_are_kept_and_each_bad_one_is_named(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    whole = record().to_json()
    text = f"{whole}\n\nnot json\n{whole[:40]}\n\xff\n{record(seed=1).to_json()}\n{whole[:-30]}"
    folder.records_path.write_bytes(text.encode("latin-1"))
    found, problems = folder.records()
    assert [r.seed for r in found] == [0, 1]
    assert [problem.partition(": ")[0].rpartition(":")[2] for problem in problems] == list("3457")
    assert all("\n" not in problem for problem in problems)


def test_the_first_of_two_runs_counts(tmp_path: Path) -> None:
    """A second run of the same row, with a better number, is no better row."""
    folder = BoardFolder(tmp_path)
    for speedup in (2.0, 9.0):
        append_line(folder.records_path, record(answers=(claimed(4, speedup),)).to_json())
    found, problems = folder.records()
    assert [r.answers[0].claim.speedup for r in found if r.answers[0].claim] == [2.0]
    assert "the first counts" in problems[0]


def test_half_a_line_is_cut_off_before_the_next_is_written(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    with path.open("a") as file:
        file.write("hal")
    append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"
    path.write_text("torn")
    append_line(path, "whole")
    assert path.read_text() == "whole\n"
    assert read_lines(tmp_path / "none", str) == ([], [])


def test_plans_grow_and_keep_their_trial_counts(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    assert folder.plan() is None
    plan = Plan(("beam",), (ADD,), (16, 64), (0,))
    folder.save_plan(plan)
    more = plan.merged(Plan(("mcts", "beam"), (SUM,), (16, 64), (0, 1)))
    assert more == Plan(("beam", "mcts"), (ADD, SUM), (16, 64), (0, 1))
    assert len(list(more.rows())) == 8
    assert folder.plan() == plan
    with pytest.raises(InvalidValueError, match="16,64, as in the folder"):
        plan.merged(Plan((), (), (8,), ()))
    with pytest.raises(InvalidValueError, match=r"--seconds.*none, as in the folder"):
        plan.merged(Plan((), (), (16, 64), (), seconds=60.0))
    threads = replace(plan, target="llvm/skylake/4 threads")
    assert plan.merged(threads).target == threads.target  # a plan of before there was one
    assert threads.merged(plan).target == threads.target
    with pytest.raises(InvalidValueError, match=r"--threads.*4 threads, as in the folder"):
        threads.merged(replace(plan, target="llvm/skylake/1 thread"))
    folder.save_plan(threads)
    assert folder.plan() == threads
    folder.plan_path.write_text('{"format": "tirgym-bench-plan-1", "agents": 3}')
    with pytest.raises(DamagedFileError, match="plan"):
        folder.plan()


def test_two_processes_do_not_write_at_once(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    with (
        folder.writing(),
        pytest.raises(EvaluationError, match="another process writes"),
        BoardFolder(tmp_path).writing(),
    ):
        pass
    with folder.writing():
        assert tmp_path.is_dir()
