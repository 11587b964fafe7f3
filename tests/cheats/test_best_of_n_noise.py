"""Trick: measure often and report the luckiest number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from boards import ADD, TARGET, claimed, measured, record
from fakes import FakeEvaluator

from tirgym.benchmarks.leaderboard.entrants import entrant
from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line
from tirgym.benchmarks.leaderboard.running import Conditions, run_row
from tirgym.benchmarks.leaderboard.verifying import verify_board
from tirgym.harness.program import Program

STEP = "Split(loop=0, factor=2)"


def board(path: Path, claim: float) -> BoardFolder:
    answers = tuple(claimed(n, claim, STEP) for n in (2, 4))
    folder = BoardFolder(path)
    append_line(folder.records_path, record(answers=answers).to_json())
    return folder


def test_a_lucky_session_moves_no_median(tmp_path: Path) -> None:
    luck = {0: 0.98, 1: 7.0, 2: 1.01}
    folder = board(tmp_path, 7.0)
    found = verify_board(folder, 3, measure=measured(lambda recipe, session: luck[session]))
    assert {v.speedup for v in found.verified} == {1.01}
    assert not found.sound  # the claim is not reached, and the exit code says so


def test_verifying_again_draws_no_second_lot(tmp_path: Path) -> None:
    """A session that was measured stays, so that nobody verifies until luck helps."""
    folder = board(tmp_path, 1.0)
    verify_board(folder, 3, measure=measured(lambda recipe, session: 1.0))
    again = verify_board(folder, 3, measure=measured(lambda recipe, session: 9.0))
    assert {v.speedup for v in again.verified} == {1.0}


def test_the_claim_of_a_run_is_no_maximum() -> None:
    """Every program is equally fast, with noise; the best of many looks fast until it is measured
    once more."""
    rng = np.random.default_rng(0)

    def noisy(program: Program) -> float:
        return float(np.exp(rng.normal(0.0, 0.2)))

    given = Conditions(TARGET, (4,), make_evaluator=lambda target, seed: FakeEvaluator((), noisy))
    looks, claims = [], []
    found = run_row(entrant("boards:Stepper"), ADD, 0, given)
    looks.append(found.curve[-1].best_speedup)
    claims.append(found.answers[0].claim)
    assert looks[0] > 1.0
    assert claims[0] is not None
    assert claims[0].speedup != looks[0]
