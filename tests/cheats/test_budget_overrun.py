"""Trick: go on when the budget is spent, or count differently."""

from __future__ import annotations

from boards import ADD, TARGET
from fakes import FakeEvaluator

from tirgym.benchmarks.leaderboard.entrants import entrant
from tirgym.benchmarks.leaderboard.record import Outcome
from tirgym.benchmarks.leaderboard.running import Conditions, run_row
from tirgym.harness.evaluation import Level


def test_an_agent_that_does_not_listen_gets_nothing_more() -> None:
    made: list[FakeEvaluator] = []

    def evaluator(target: object, seed: int) -> FakeEvaluator:
        made.append(FakeEvaluator())
        return made[-1]

    found = run_row(
        entrant("boards:Deaf"), ADD, 0, Conditions(TARGET, (1,), make_evaluator=evaluator)
    )
    assert (found.outcome, found.used.trials, found.stopped) == (Outcome.FINISHED, 1, "trials")
    searched = [key for key, level in made[0].calls if level is Level.TRAINING]
    assert len(searched) == 2  # the unscheduled program, which is free, and one trial


def test_an_agent_that_patches_its_process_changes_neither_count_nor_numbers() -> None:
    given = Conditions(TARGET, (2,), make_evaluator=lambda target, seed: FakeEvaluator())
    found = run_row(entrant("boards:Forger"), ADD, 0, given)
    assert found.used.trials == 2
    speedups = [point.speedup for point in found.curve]
    assert max(speedup or 0.0 for speedup in speedups) < 2.0
    assert found.answers[0].claim is not None
    assert (found.answers[0].claim.speedup or 0.0) < 2.0
