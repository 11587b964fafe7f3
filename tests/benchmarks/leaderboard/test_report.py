"""The board as JSON, Markdown and CSV: numbers by hand, holes in the denominator, two tables."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from boards import ADD, claimed, measured, point, record

from tirgym.benchmarks.leaderboard.assembly import assembled
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Outcome,
    Recipe,
    RecipeKind,
    Record,
    Saw,
    SawWhat,
    Used,
)
from tirgym.benchmarks.leaderboard.shipped import run_shipped
from tirgym.benchmarks.leaderboard.tables import markdown, ranking_csv, workloads_csv, write_report
from tirgym.benchmarks.leaderboard.verifying import verify_board
from tirgym.errors import InvalidValueError

STEP, OTHER, BAD = "Split(loop=0, factor=2)", "Split(loop=1, factor=2)", "Split(loop=1, factor=4)"
BLUR = "tirgym://core-v0/blur?m=8&n=16&dtype=float32"
"""NumPy has no call for it."""
WORTH = {STEP: 4.0, OTHER: 0.5, BAD: None}


def worth(recipe: Recipe, session: int) -> float | None:
    """By the last step; libraries are 2, the default 1, the control off by half a percent."""
    fixed = {RecipeKind.LIBRARY: 2.0, RecipeKind.DEFAULT: 1.0, RecipeKind.CONTROL: 1.005}
    return WORTH[recipe.steps[-1]] if recipe.steps else fixed.get(recipe.kind, 1.0)


def run(agent: str, uri: str, seed: int, step: str, **fields: Any) -> Record:
    answers = tuple(claimed(n, WORTH[step], step) for n in (2, 4))
    return record(agent, uri, seed, answers=answers, **fields)


def reference(agent: str, uri: str, seed: int, recipe: Recipe) -> Record:
    answers = tuple(Answer(n, recipe) for n in (2, 4))
    return record(agent, uri, seed, answers=answers, curve=())


def small_board(path: Path) -> BoardFolder:
    folder = BoardFolder(path)
    control, default = Recipe(RecipeKind.CONTROL), Recipe(RecipeKind.DEFAULT)
    library = Recipe(RecipeKind.LIBRARY, vendor="numpy")
    rows = []
    for seed in (0, 1):
        rows += [
            run("beam", ADD, seed, STEP, curve=(point(0), point(1, 2.0), point(3, 4.0))),
            run("beam", BLUR, seed, OTHER if seed else STEP),
            run("mcts", ADD, seed, BAD if seed else OTHER),
            run("greedy", ADD, seed, STEP, saw=Saw(SawWhat.MODEL, ("elementwise",), "old.model")),
            run("greedy", BLUR, seed, STEP, saw=Saw(SawWhat.MODEL, ("elementwise",), "old.model")),
        ]
        rows += [reference("a/a", uri, seed, control) for uri in (ADD, BLUR)]
        rows += [reference("default", uri, seed, default) for uri in (ADD, BLUR)]
        rows.append(reference("vendor-numpy", ADD, seed, library))
        nothing = replace(reference("vendor-numpy", BLUR, seed, library), answers=())
        rows.append(replace(nothing, outcome=Outcome.NOT_APPLICABLE))
    for row in rows:
        append_line(folder.records_path, row.to_json())
    verify_board(folder, 3, measure=measured(worth))
    return folder


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return assembled(small_board(tmp_path_factory.mktemp("board")))


def ranks(board: dict[str, Any], agent: str, trials: str = "4") -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in board["rankings"][trials] if r["agent"] == agent)
    return found


def test_it_is_strict_json(board: dict[str, Any]) -> None:
    assert json.loads(json.dumps(board, allow_nan=False)) == board
    assert board["format"] == "tirgym-board-1"


def test_geomeans_by_hand(board: dict[str, Any]) -> None:
    beam = ranks(board, "beam")
    # 4, 4 on add; 4 and 0.5 (counts 1) on blur
    assert beam["geomean"]["value"] == pytest.approx((4 * 4 * 4 * 1) ** 0.25)
    assert beam["geomean_unclipped"]["value"] == pytest.approx((4 * 4 * 4 * 0.5) ** 0.25)
    assert beam["median"]["value"] == pytest.approx((4 + 2.5) / 2)
    assert beam["geomean"]["low"] < beam["geomean"]["value"] < beam["geomean"]["high"]
    assert (beam["fast_p"]["0"], beam["fast_p"]["1"], beam["fast_p"]["5"]) == (1.0, 0.75, 0.0)


def test_failures_and_rows_that_are_not_there_count_half(board: dict[str, Any]) -> None:
    mcts = ranks(board, "mcts")
    # add: 0.5 (counts 1), failed (0.5); blur: never run, twice
    assert mcts["geomean"]["value"] == pytest.approx((1 * 0.5 * 0.5 * 0.5) ** 0.25)
    assert (mcts["verified"], mcts["failed"], mcts["missing"]) == (1, 1, 2)
    assert mcts["fast_p"]["0"] == 0.25
    counts = board["counts"]
    assert counts["expected"] == 6 * 2 * 2 * 2
    assert (counts["failed"], counts["missing"], counts["not_applicable"]) == (2, 4, 4)


def test_references_that_do_not_apply_keep_the_unscheduled_program(board: dict[str, Any]) -> None:
    vendor = ranks(board, "vendor-numpy")
    assert vendor["geomean"]["value"] == pytest.approx(2**0.5)
    assert vendor["not_applicable"] == 2
    against = ranks(board, "beam")["against"]
    vendor = against["vendor-numpy"]
    assert (vendor["geomean"], vendor["workloads"]) == (pytest.approx(2.0), 1)
    assert ranks(board, "vendor-numpy")["fast_p"]["0"] == 0.5  # what does not apply is not verified
    # add: 4 in both seeds; blur: 4 and 0.5, which counts 1
    assert against["default"]["geomean"] == pytest.approx(64**0.25)
    assert against["default"]["low"] < 64**0.25 < against["default"]["high"]
    assert against["naive"]["workloads"] == against["default"]["workloads"] == 2
    assert against["metaschedule"] is None


def test_two_references_agree_about_each_other(board: dict[str, Any]) -> None:
    """Over the workloads that both have, and what is slower than the unscheduled program stays so."""
    one = ranks(board, "vendor-numpy")["against"]["default"]
    other = ranks(board, "default")["against"]["vendor-numpy"]
    assert one["workloads"] == other["workloads"] == 1
    assert one["geomean"] == pytest.approx(2.0)
    assert one["geomean"] * other["geomean"] == pytest.approx(1.0)


def test_seeds_with_the_same_answers_have_no_interval(board: dict[str, Any]) -> None:
    """They are measured once for all: nothing varies from seed to seed."""
    default, beam = ranks(board, "default"), ranks(board, "beam")
    assert default["geomean"]["low"] is default["against"]["vendor-numpy"]["low"] is None
    assert beam["geomean"]["low"] is not None
    assert beam["against"]["default"]["low"] is not None


def test_agents_that_saw_the_family_stand_in_their_own_table(board: dict[str, Any]) -> None:
    agents = {agent["name"]: agent for agent in board["agents"]}
    assert agents["greedy"]["headline"] is False
    assert agents["greedy"]["why"] == "saw elementwise"
    greedy, beam = ranks(board, "greedy"), ranks(board, "beam")
    assert greedy["geomean"]["value"] > beam["geomean"]["value"]
    assert (greedy["headline"], greedy["rank"], beam["headline"], beam["rank"]) == (
        False, 1, True, 1,
    )  # fmt: skip
    text = markdown(board)
    assert "## Agents that saw measurements of these families at 4 trials" in text
    assert "greedy (saw elementwise)" in text


def test_the_control_shows_the_noise_and_is_not_ranked(board: dict[str, Any]) -> None:
    assert board["control"]["worst"] == pytest.approx(0.005)
    assert board["control"]["geomean"] == pytest.approx(1.005)
    assert "a/a" not in {row["agent"] for row in board["rankings"]["4"]}
    assert "the worst is off by 0.50%" in markdown(board)


def test_cells_say_what_became_of_each_answer(board: dict[str, Any]) -> None:
    cells = [c for c in board["cells"] if (c["agent"], c["trials"]) == ("mcts", 4)]
    assert [(c["workload"], c["seed"], c["standing"], c["score"]) for c in cells] == [
        (ADD, 0, "verified", 1.0),
        (BLUR, 0, "missing", 0.5),
        (ADD, 1, "failed", 0.5),
        (BLUR, 1, "missing", 0.5),
    ]
    assert cells[0]["transforms"] == [OTHER]
    assert cells[0]["sessions"] == [0.5] * 3
    assert "wrong_result" in cells[2]["reason"]


def test_what_is_marked_stands_on_the_page_with_its_reason(board: dict[str, Any]) -> None:
    lines = [line for line in markdown(board).splitlines() if line.startswith("| mcts | add |")]
    assert any("| failed | wrong_result" in line for line in lines)
    assert "| mcts | blur | 1 | 4 | missing | there is no record |" in markdown(board)


def test_curves_are_what_the_search_saw(board: dict[str, Any]) -> None:
    assert board["curves"]["n"] == [1, 2, 4]
    assert board["curves"]["workloads"][ADD]["beam"] == pytest.approx([2.0, 2.0, 4.0])
    assert board["curves"]["agents"]["default"] is None
    reached = board["trials_to"]["agents"]["beam"]
    # the best verified is 4 on both; blur's curve ends at 2
    assert reached["0.5"] == {"median": 1, "share": [1.0, 1.0, 1.0]}
    assert reached["0.9"] == {"median": None, "share": [0.0, 0.0, 0.5]}


def test_profiles_and_improvement(board: dict[str, Any]) -> None:
    profile = board["profiles"]["4"]
    at = profile["tau"].index(0.5)
    assert profile["share"]["mcts"][at] == 0.25
    better = board["improvement"]["4"]["beam"]["mcts"]
    assert better["value"] == 1.0
    assert better["value"] + board["improvement"]["4"]["mcts"]["beam"]["value"] == 1.0


def test_metaschedule_as_shipped_stands_beside_the_time_of_our_runs(tmp_path: Path) -> None:
    folder = BoardFolder(tmp_path)
    for seed, wall_s in ((0, 10.0), (1, 30.0)):
        append_line(
            folder.records_path, run("beam", ADD, seed, STEP, used=Used(wall_s=wall_s)).to_json()
        )
    asked: list[tuple[str, int]] = []

    def tune(uri: str, trials: int) -> tuple[float, float | None]:
        asked.append((uri, trials))
        return 100.0, 5.0

    for _ in range(2):  # the second finds its line
        run_shipped(folder, [ADD], 4, tune=tune)
    assert asked == [(ADD, 4)]
    (found,) = assembled(folder, steps=False)["shipped"]
    assert (found["wall_s"], found["searches"], found["ratios"]) == (
        100.0,
        {"beam": 20.0},
        {"beam": 5.0},
    )
    assert "| add | 4 | 100 | 20 (5.0x) |" in markdown(assembled(folder, steps=False))
    with folder.shipped_path.open("a") as file:
        file.write("{}\n")
    assert any("shipped" in problem for problem in assembled(folder, steps=False)["problems"])


def test_the_winner_of_a_workload_is_told_step_by_step(board: dict[str, Any]) -> None:
    winner = next(w for w in board["winners"] if w["workload"] == ADD)
    assert winner["speedup"] == 4.0
    assert [step["transform"] for step in winner["steps"]] == [STEP]
    assert "T.grid" in winner["start"]["text"]
    assert winner["steps"][0]["text"] != winner["start"]["text"]
    assert winner["steps"][0]["changes"]


def test_csv_tables_have_one_line_for_each_row_and_cell(board: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(ranking_csv(board))))
    assert len(rows) == 2 * 5
    beam = next(r for r in rows if (r["agent"], r["trials"]) == ("beam", "4"))
    assert float(beam["geomean"]) == pytest.approx(64**0.25)
    assert (beam["table"], beam["tokens"]) == ("headline", "")
    cells = list(csv.DictReader(io.StringIO(workloads_csv(board))))
    assert len(cells) == board["counts"]["expected"]


def test_files_are_written_whole(board: dict[str, Any], tmp_path: Path) -> None:
    files = write_report(board, tmp_path / "out")
    assert [f.name for f in files] == ["board.json", "ranking.md", "ranking.csv", "cells.csv"]
    assert json.loads(files[0].read_text()) == board
    assert {f.name for f in (tmp_path / "out").iterdir()} == {f.name for f in files}


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_workload_one_seed_and_nothing_verified(tmp_path: Path, seeds: int) -> None:
    folder = BoardFolder(tmp_path)
    for seed in range(seeds):
        append_line(folder.records_path, run("beam", ADD, seed, STEP).to_json())
    made = assembled(folder, steps=False)
    assert made["counts"]["unmeasured"] == 2 * seeds
    row = ranks(made, "beam")
    assert row["geomean"]["value"] == 0.5
    assert (row["geomean"]["low"] is None) == (seeds == 1)
    assert made["control"] is None
    assert "0.50" in markdown(made)


def test_a_board_of_two_machines_reports_the_one_with_more_records(tmp_path: Path) -> None:
    folder = small_board(tmp_path)
    stray = run("beam", ADD, 9, STEP)
    stray = replace(stray, machine=replace(stray.machine, fingerprint="feed", cpu="Other"))
    append_line(folder.records_path, stray.to_json())
    made = assembled(folder, steps=False)
    assert made["seeds"] == [0, 1]
    assert any("other hardware (Other" in problem for problem in made["problems"])


def test_a_folder_without_a_good_record_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text("{}\n")
    with pytest.raises(InvalidValueError, match="at least one good record"):
        assembled(BoardFolder(tmp_path))
