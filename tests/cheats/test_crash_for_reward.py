"""Trick: end the process, or never come back, when there is nothing left to win."""

from __future__ import annotations

import pytest
from boards import ADD, TARGET, measured, session
from fakes import FakeEvaluator

from tirgym.benchmarks.leaderboard.entrants import entrant
from tirgym.benchmarks.leaderboard.record import Outcome, Record
from tirgym.benchmarks.leaderboard.running import Conditions, run_row
from tirgym.benchmarks.leaderboard.verdicts import Standing, judge, judge_record


def play(agent: str, hard_limit_s: float = 60.0) -> Record:
    given = Conditions(
        TARGET,
        (2, 4),
        hard_limit_s=hard_limit_s,
        make_evaluator=lambda target, seed: FakeEvaluator(),
    )
    return run_row(entrant(agent), ADD, 0, given)


def test_a_crash_with_nothing_found_is_a_failure_and_no_tie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To keep the unscheduled program would count 1; to crash counts 0.5."""
    monkeypatch.setenv("BOARDS_CRASH_FIRST", "1")
    found = play("boards:Crasher")
    assert found.outcome is Outcome.CRASH
    verdicts = judge_record(found, {}, 0)
    assert {v.standing for v in verdicts} == {Standing.FAILED}
    assert "crash" in verdicts[0].reason


def test_a_crash_after_a_find_earns_what_is_verified_of_it() -> None:
    found = play("boards:Crasher")
    assert (found.outcome, found.used.trials) == (Outcome.CRASH, 1)
    answer = found.answers[-1]
    assert answer.recipe.steps == ("Split(loop=0, factor=2)",)
    fields = {"recipe": answer.recipe.digest, "ir_key": answer.ir_key}
    good = judge(found, 4, answer, [session(1.05, 0, **fields)], 1)
    assert (good.standing, good.speedup) == (Standing.VERIFIED, 1.05)
    bad = judge(found, 4, answer, [session(None, 0, **fields)], 1)
    assert bad.standing is Standing.FAILED


def test_an_agent_that_never_comes_back_is_killed_and_fails() -> None:
    found = play("boards:Sleeper", hard_limit_s=1.0)
    assert found.outcome is Outcome.TIMEOUT
    assert found.used.wall_s < 30.0
    assert judge_record(found, {}, 0)[0].standing is Standing.FAILED


def test_sessions_that_crash_fail_the_answer() -> None:
    (crash,) = measured()(ADD, TARGET, [], 0) or [session(None, status="crash", message="died")]
    found = play_record(crash.recipe)
    verdict = judge(found, 2, found.answers[0], [crash], 1)
    assert verdict.standing is Standing.FAILED
    assert "died" in verdict.reason


def play_record(recipe: str) -> Record:
    from boards import record

    made = record()
    assert made.answers[0].recipe.digest == recipe
    return made
