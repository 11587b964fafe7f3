"""Trick: fail in a way that some average takes for a success."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from boards import ADD, SUM, claimed, measured, record

from tirgym.benchmarks.leaderboard.assembly import assembled
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.record import Recipe
from tirgym.benchmarks.leaderboard.statistics import fast_p, geomean, iqm, median, ranked
from tirgym.benchmarks.leaderboard.verdicts import Standing, judge
from tirgym.benchmarks.leaderboard.verifying import verify_board

NO_NUMBERS = (math.nan, math.inf, -math.inf, 0.0, -5.0)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_speedup_is_never_averaged_as_one(value: float) -> None:
    failed, kept = ranked([[value, 4.0]]), ranked([[1.0, 4.0]])
    for statistic in (geomean, median, iqm):
        assert float(statistic(failed)) < float(statistic(kept))
    assert fast_p([[value if value <= 0.0 else math.nan]], 0.0) == 0.0


def test_a_failure_is_worse_than_to_do_nothing_and_than_to_be_slow() -> None:
    assert ranked(np.nan) < ranked(0.01) == ranked(1.0)


@pytest.mark.parametrize("claim", [math.nan, math.inf, 1e300])
def test_numbers_in_a_claim_do_not_matter(claim: float) -> None:
    made = record(answers=(claimed(2, claim, "Split(loop=0, factor=2)"),))
    sessions = measured(lambda recipe, session: None)
    from boards import TARGET

    from tirgym.benchmarks.leaderboard.measuring import Job

    found = sessions(ADD, TARGET, [Job(made.answers[0].recipe, made.kind, False)], 0)
    verdict = judge(made, 2, made.answers[0], found, 1)
    assert (verdict.standing, verdict.speedup) == (Standing.FAILED, None)


def test_an_agent_that_fails_where_it_would_be_slow_loses(tmp_path: Path) -> None:
    """Wrong on purpose is no way to leave a workload out."""
    good, slow, wrong = (f"Split(loop={loop}, factor={f})" for loop, f in ((0, 2), (1, 2), (1, 4)))
    worths = {good: 4.0, slow: 0.5, wrong: None}

    def worth(recipe: Recipe, session: int) -> float | None:
        return worths[recipe.steps[0]]

    folder = BoardFolder(tmp_path)
    for agent, second in (("beam", slow), ("mcts", wrong)):
        for uri, step in ((ADD, good), (SUM, second)):
            answers = tuple(claimed(n, None, step) for n in (2, 4))
            append_line(folder.records_path, record(agent, uri, answers=answers).to_json())
    found = verify_board(folder, 1, measure=measured(worth))
    assert not found.sound
    ranking = assembled(folder, steps=False)["rankings"]["4"]
    assert [row["agent"] for row in ranking] == ["beam", "mcts"]
    assert [row["geomean"]["value"] for row in ranking] == pytest.approx([2.0, math.sqrt(2.0)])
    assert [row["fast_p"]["0"] for row in ranking] == [1.0, 0.5]
