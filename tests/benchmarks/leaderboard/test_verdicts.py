"""Verdicts: the median of sessions, failures with their reason, claims that are not reached."""

from __future__ import annotations

from typing import Any

import pytest
from boards import ADD, claimed, point, record, session

from tirgym.benchmarks.leaderboard.record import Answer, Kind, Outcome, Recipe, RecipeKind
from tirgym.benchmarks.leaderboard.verdicts import Standing, Verified, judge, judge_record
from tirgym.kernels_suite.registry import load_workload

STEP = "Split(loop=0, factor=2)"


def verdict(*speedups: float | None, claim: float | None = 2.0, **fields: Any) -> Verified:
    made = record(answers=(claimed(2, claim, STEP),), trials=(2,))
    found = [session(x, n, **fields) for n, x in enumerate(speedups)]
    return judge(made, 2, made.answers[0], found, len(speedups))


def test_the_median_session_counts_and_never_the_best() -> None:
    found = verdict(1.9, 9.0, 2.1)
    assert (found.standing, found.speedup, found.low, found.high) == ("verified", 2.1, 1.9, 9.0)
    assert found.sessions == (1.9, 9.0, 2.1)
    assert found.claim_holds


def test_one_failed_session_fails_the_answer() -> None:
    found = verdict(2.0, None, 2.0, message="element [3]: 7.0")
    assert (found.standing, found.speedup) == (Standing.FAILED, None)
    assert "wrong_result: element [3]: 7.0" in found.reason


def test_too_few_sessions_are_no_number() -> None:
    made = record()
    found = judge(made, 2, made.answers[0], [session()], 3)
    assert (found.standing, found.speedup) == (Standing.UNMEASURED, None)
    assert found.reason == "1 of 3 sessions measured"


@pytest.mark.parametrize("status", ["noisy", "suspect", "too_slow"])
def test_sessions_without_a_number_are_outvoted_or_fail(status: str) -> None:
    made = record()
    untimed = [session(None, n, status=status) for n in range(2)]
    few = judge(made, 2, made.answers[0], [session(), session(2.2, 1), untimed[0]], 3)
    assert (few.standing, few.speedup) == (Standing.VERIFIED, 2.1)
    most = judge(made, 2, made.answers[0], [session(), *untimed], 3)
    assert most.standing is Standing.FAILED
    assert status in most.reason


def test_a_claim_that_is_not_reached_is_marked_and_the_measured_number_stands() -> None:
    found = verdict(2.0, 2.0, claim=1000.0)
    assert (found.standing, found.speedup, found.claim_holds) == ("verified", 2.0, False)
    assert found.reason == "claimed 1000.00x, measured 2.00x"
    assert verdict(2.0, claim=None).claim_holds is None


def test_not_portable_is_no_failure_and_wrong_elsewhere_is_one() -> None:
    shapes = {"a": "not_portable: no loop 3", "b": "passed", "c": "unjudged: too_slow: 3 s"}
    portable = verdict(2.0, shapes=shapes)
    assert portable.standing is Standing.VERIFIED
    assert portable.shapes == {"passed": 1, "not_portable": 1, "unjudged": 1}
    wrong = verdict(2.0, shapes={"m=7": "failed: wrong_result: element [6]"})
    assert wrong.standing is Standing.FAILED
    assert "at m=7: failed: wrong_result" in wrong.reason


def test_another_program_than_recorded_fails() -> None:
    made = record(answers=(Answer(2, Recipe(RecipeKind.TRANSFORMS, (STEP,)), "aaaa", "code"),))
    found = judge(made, 2, made.answers[0], [session(ir_key="bbbb")], 1)
    assert found.standing is Standing.FAILED
    assert "bbbb" in found.reason


def test_answers_that_the_run_did_not_measure_in_time_fail() -> None:
    late = record(
        answers=(claimed(2, 2.0, STEP, code="late"), claimed(4, 2.0, STEP, code="late")),
        curve=(point(0), point(1, code="early"), point(3, code="late")),
    )
    sessions = {(late.workload, late.answers[0].recipe.digest): [session(code_key="late")]}
    early, all_ = judge_record(late, sessions, 1)
    assert early.standing is Standing.FAILED
    assert "not among the first 2 trials" in early.reason
    assert all_.standing is Standing.VERIFIED


def test_a_reference_without_an_answer_is_not_applicable_and_an_agent_fails() -> None:
    fields: dict[str, Any] = {"answers": (), "curve": (), "outcome": Outcome.NOT_APPLICABLE}
    nothing = record("vendor-numpy", load_workload("blur").uri, **fields)
    assert {v.standing for v in judge_record(nothing, {}, 3)} == {Standing.NOT_APPLICABLE}
    for agent in ("beam", "metaschedule", "boards:Idle", "noop", "default", "a/a", "vendor-numpy"):
        silent = record(agent, ADD, **fields)  # each has an answer there
        assert {v.standing for v in judge_record(silent, {}, 3)} == {Standing.FAILED}, agent
    empty = record(answers=())
    assert {v.standing for v in judge_record(empty, {}, 3)} == {Standing.FAILED}


@pytest.mark.parametrize(
    ("agent", "recipe"),
    [
        ("beam", Recipe(RecipeKind.LIBRARY, vendor="numpy")),
        ("beam", Recipe(RecipeKind.DEFAULT)),
        ("beam", Recipe(RecipeKind.SCHEDULE, schedule="[[], []]")),
        ("metaschedule", Recipe(RecipeKind.LIBRARY, vendor="numpy")),
    ],
)
def test_rows_answer_in_their_own_language(agent: str, recipe: Recipe) -> None:
    made = record(agent, answers=(Answer(2, recipe, "", "code"),))
    found = judge(made, 2, made.answers[0], [session()], 1)
    assert found.standing is Standing.FAILED
    assert "cannot answer with" in found.reason


@pytest.mark.parametrize(
    ("agent", "recipe"),
    [
        ("a/a", Recipe(RecipeKind.TRANSFORMS)),
        ("noop", Recipe(RecipeKind.TRANSFORMS, ("Split(loop=0, factor=2)",))),
        ("default", Recipe(RecipeKind.TRANSFORMS)),
        ("vendor-torch", Recipe(RecipeKind.TRANSFORMS)),
        ("vendor-torch", Recipe(RecipeKind.LIBRARY, vendor="numpy")),
    ],
)
def test_a_reference_has_one_answer(agent: str, recipe: Recipe) -> None:
    made = record(agent, answers=(Answer(2, recipe),), curve=())
    measured = session(1.0, recipe=recipe.digest)
    found = judge(made, 2, made.answers[0], [measured], 1)
    assert (found.standing, found.speedup) == (Standing.FAILED, None)
    assert "another answer" in found.reason


def test_a_row_cannot_call_itself_a_reference() -> None:
    made = record(answers=(Answer(2, Recipe(RecipeKind.LIBRARY, vendor="numpy")),))
    object.__setattr__(made, "kind", Kind.REFERENCE)
    assert "is no reference" in judge(made, 2, made.answers[0], [session()], 1).reason
