"""Trick: leave out the rows that went badly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from boards import ADD, SUM, claimed, measured, record

from tirgym.benchmarks.leaderboard.assembly import assembled
from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan, append_line
from tirgym.benchmarks.leaderboard.record import Recipe
from tirgym.benchmarks.leaderboard.verifying import verify_board

GOOD, POOR = "Split(loop=0, factor=2)", "Split(loop=1, factor=2)"


def worth(recipe: Recipe, session: int) -> float:
    return 4.0 if recipe.steps == (GOOD,) else 0.7


def score(path: Path, rows: list[tuple[str, str, int, str]], plan: Plan | None = None) -> Any:
    """Geometric mean of beam on a board of these rows: (agent, workload, seed, step)."""
    folder = BoardFolder(path)
    if plan is not None:
        folder.save_plan(plan)
    for agent, uri, seed, step in rows:
        answers = tuple(claimed(n, None, step) for n in (2, 4))
        append_line(folder.records_path, record(agent, uri, seed, answers=answers).to_json())
    verify_board(folder, 1, measure=measured(worth))
    ranking = assembled(folder, steps=False)["rankings"]["4"]
    return next(row["geomean"]["value"] for row in ranking if row["agent"] == "beam")


OTHERS = [("mcts", uri, seed, GOOD) for uri in (ADD, SUM) for seed in (0, 1)]
WHOLE = [("beam", ADD, 0, GOOD), ("beam", ADD, 1, POOR), ("beam", SUM, 0, POOR),
         ("beam", SUM, 1, GOOD)]  # fmt: skip


@pytest.mark.parametrize("dropped", [[1], [2], [1, 2]])
def test_a_row_that_is_missing_counts_less_than_a_poor_one(
    dropped: list[int], tmp_path: Path
) -> None:
    """Other agents were run there, so the board knows that it should be there."""
    kept = [row for number, row in enumerate(WHOLE) if number not in dropped]
    assert score(tmp_path / "kept", kept + OTHERS) < score(tmp_path / "whole", WHOLE + OTHERS)


def test_a_workload_that_nobody_ran_is_in_the_plan(tmp_path: Path) -> None:
    plan = Plan(("beam",), (ADD, SUM), (2, 4), (0, 1))
    kept = [row for row in WHOLE if row[1] == ADD]
    assert score(tmp_path / "kept", kept, plan) < score(tmp_path / "whole", WHOLE, plan)


def test_a_plan_that_was_cut_down_is_widened_by_the_records(tmp_path: Path) -> None:
    """A plan of the good workload alone does not hide the other one."""
    plan = Plan(("beam",), (ADD,), (2, 4), (0,))
    assert score(tmp_path / "cut", WHOLE, plan) == score(tmp_path / "whole", WHOLE)


def test_verdicts_that_were_taken_out_count_as_not_verified(tmp_path: Path) -> None:
    score(tmp_path, WHOLE)
    folder = BoardFolder(tmp_path)
    lines = folder.verified_path.read_text().splitlines(keepends=True)
    folder.verified_path.write_text("".join(line for line in lines if '"speedup":0.7' not in line))
    made = assembled(folder, steps=False)
    assert made["counts"]["unmeasured"] == 4
    assert made["rankings"]["4"][0]["geomean"]["value"] == pytest.approx(
        (4 * 4 * 0.5 * 0.5) ** 0.25
    )
