"""Trick: write the board's own files: records, sessions of clean processes, verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from boards import ADD, TARGET, claimed, measured, point, record, session

from tirgym.benchmarks.leaderboard.assembly import assembled
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.measuring import Job
from tirgym.benchmarks.leaderboard.recipes import program_of
from tirgym.benchmarks.leaderboard.record import Answer, Kind, Recipe, RecipeKind
from tirgym.benchmarks.leaderboard.signing import Signer
from tirgym.benchmarks.leaderboard.tables import markdown
from tirgym.benchmarks.leaderboard.verdicts import Session, Standing
from tirgym.benchmarks.leaderboard.verifying import verify_board
from tirgym.errors import InvalidValueError
from tirgym.harness.target import Target
from tirgym.kernels_suite.registry import load_workload

STEP = "Split(loop=0, factor=2)"


def board(path: Path, **fields: Any) -> BoardFolder:
    folder = BoardFolder(path)
    append_line(folder.records_path, record(**fields).to_json())
    return folder


def test_a_record_of_a_thousand_times_is_worth_what_is_measured(tmp_path: Path) -> None:
    folder = board(tmp_path, answers=tuple(claimed(n, 1000.0, STEP) for n in (2, 4)))
    found = verify_board(folder, 3, measure=measured(lambda recipe, session: 1.1))
    assert {(v.standing, v.speedup, v.claim_holds) for v in found.verified} == {
        (Standing.VERIFIED, 1.1, False)
    }
    assert not found.sound


def forged(**fields: Any) -> dict[str, Any]:
    return {"format": "tirgym-session-1", **asdict(session(1000.0, **fields))}


@pytest.mark.parametrize("mark", ["none", "guessed", "of another installation", "of another line"])
def test_sessions_that_were_written_by_hand_are_measured_again(mark: str, tmp_path: Path) -> None:
    lines = {
        "none": json.dumps(forged()),
        "guessed": json.dumps({**forged(), "mark": "0" * 64}),
        "of another installation": Signer(tmp_path / "other.key").signed(forged()),
        "of another line": json.dumps(
            {**forged(), "mark": json.loads(Signer().signed(forged(number=1)))["mark"]}
        ),
    }
    folder = board(tmp_path)
    for _ in range(2):
        append_line(folder.sessions_path, lines[mark])
    asked: list[int] = []

    def measure(uri: str, target: Target, jobs: Sequence[Job], number: int) -> list[Session]:
        asked.append(number)
        return measured()(uri, target, jobs, number)

    found = verify_board(folder, 2, measure=measure)
    assert asked == [0, 1]
    assert {v.speedup for v in found.verified} == {2.0}
    assert len(found.problems) == 1
    assert ":1 and 1 more lines: not measured by this installation" in found.problems[0]
    assert "1000" not in folder.sessions_path.read_text()


def test_verdicts_that_were_written_by_hand_are_made_anew(tmp_path: Path) -> None:
    folder = board(tmp_path)
    verify_board(folder, 1, measure=measured())
    text = folder.verified_path.read_text()
    folder.verified_path.write_text(text.replace('"speedup":2.0', '"speedup":2000.0'))
    told = assembled(folder, steps=False)
    assert told["foreign"] == 2
    assert "2 verdicts were made elsewhere" in markdown(told)
    verify_board(folder, 1, measure=measured())
    assert folder.verified_path.read_text() == text
    assert assembled(folder, steps=False)["foreign"] == 0


def test_a_find_cannot_be_moved_to_an_earlier_trial(tmp_path: Path) -> None:
    folder = board(
        tmp_path,
        answers=tuple(claimed(n, 2.0, STEP, code="late") for n in (2, 4)),
        curve=(point(0), point(1, code="early"), point(4, 2.0, "late")),
    )
    found = {v.trials: v for v in verify_board(folder, 1, measure=measured()).verified}
    assert found[2].standing is Standing.FAILED
    assert found[4].standing is Standing.VERIFIED


def test_more_trials_than_the_budget_are_no_run(tmp_path: Path) -> None:
    curve = tuple(point(n, 2.0) for n in range(10))
    found = verify_board(board(tmp_path, curve=curve), 1, measure=measured())
    assert {v.standing for v in found.verified} == {Standing.FAILED}
    assert "9 trials spent of 4" in found.verified[0].reason


def test_a_search_that_shows_no_trials_is_no_run(tmp_path: Path) -> None:
    found = verify_board(board(tmp_path, curve=()), 1, measure=measured())
    assert {v.standing for v in found.verified} == {Standing.FAILED}
    assert "no curve" in found.verified[0].reason


def test_a_library_is_no_schedule_of_an_agent(tmp_path: Path) -> None:
    library = Recipe(RecipeKind.LIBRARY, vendor="numpy")
    found = verify_board(
        board(tmp_path, answers=tuple(Answer(n, library, "", "code") for n in (2, 4))),
        1,
        measure=measured(),
    )
    assert {v.standing for v in found.verified} == {Standing.FAILED}


@pytest.mark.parametrize(
    "instruction",
    [
        ["UnsafeSetDType", ["b0"], [0, "float16"], []],
        ["TransformLayout", ["b0"], [0, 0, None], []],
        ["Annotate", ["b0", '"x"'], ["pragma_import_llvm"], []],
        ["Tensorize", ["b0"], ["evil"], []],
    ],
)
def test_the_peers_own_language_is_a_list_too(instruction: list[Any]) -> None:
    """MetaSchedule's records hold TVM's instructions; only those that it needs are accepted."""
    text = json.dumps([[["GetSBlock", [], ["root", "main"], ["b0"]], instruction], []])
    recipe = Recipe(RecipeKind.SCHEDULE, schedule=text)
    with pytest.raises(InvalidValueError, match="not accepted"):
        program_of(recipe, load_workload(ADD), TARGET, Kind.PEER)
    with pytest.raises(InvalidValueError, match="transforms of the vocabulary"):
        program_of(recipe, load_workload(ADD), TARGET, Kind.AGENT)


def test_a_verdict_does_not_stand_for_another_answer(tmp_path: Path) -> None:
    """The answer is exchanged after it was verified, or the verdict of a better run is put in."""
    folder = board(tmp_path)
    verify_board(folder, 1, measure=measured(lambda recipe, session: 9.0))
    assert assembled(folder, steps=False)["counts"]["verified"] == 2
    other = record(answers=tuple(claimed(n, 9.0, "Split(loop=1, factor=2)") for n in (2, 4)))
    folder.records_path.write_text(other.to_json() + "\n")
    made = assembled(folder, steps=False)
    assert (made["counts"]["verified"], made["counts"]["unmeasured"]) == (0, 2)
    assert "2 verdicts are about other answers" in made["problems"][0]
