"""Records, agents, and a guard that survives what agents do."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from decision_points import POINT

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.decisions import (
    CallbackAgent,
    DecisionPoint,
    Guard,
    RandomAgent,
    Recommendation,
    StaticAgent,
)


def test_records_come_back_from_json_as_they_were() -> None:
    assert DecisionPoint.from_json(POINT.to_json()) == POINT
    answer = Recommendation(2, 0.5, 1.25, "wider")
    assert Recommendation.from_json(answer.to_json()) == answer


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"option": 1, "x": 2}', '{"options": [1]}'])
def test_damaged_records_are_refused(text: str) -> None:
    with pytest.raises(DamagedFileError):
        DecisionPoint.from_json(text)
    with pytest.raises(DamagedFileError):
        Recommendation.from_json(text)


def test_agents_answer() -> None:
    assert StaticAgent().decide(POINT).option == 1
    draws = [RandomAgent(seed).decide(POINT).option for seed in range(30)]
    assert set(draws) == {0, 1, 2}
    assert draws == [RandomAgent(seed).decide(POINT).option for seed in range(30)]
    assert CallbackAgent(lambda point: 2).decide(POINT) == Recommendation(2)
    whole = Recommendation(0, 0.1)
    assert CallbackAgent(lambda point: whole).decide(POINT) is whole


@pytest.mark.parametrize("seconds", [None, 5.0])
@pytest.mark.parametrize("option", [-1, 3, 1.5, True, "1", None, float("nan")])
def test_answers_out_of_range_fall_back_to_the_static_choice(
    option: Any, seconds: float | None
) -> None:
    guard = Guard(CallbackAgent(lambda point: Recommendation(option)), seconds)
    answer = guard.decide(POINT)
    assert (answer.option, answer.confidence) == (1, 0.0)
    assert (guard.report.asked, guard.report.out_of_range, guard.report.taken) == (1, 1, 0)
    assert "C.tile.j.5" in guard.report.messages[0]


def test_what_is_no_recommendation_falls_back_too() -> None:
    class Mute:
        def decide(self, point: DecisionPoint) -> Recommendation:
            return None  # type: ignore[return-value]

    guard = Guard(Mute())
    assert guard.decide(POINT).option == 1
    assert guard.report.out_of_range == 1


def test_agents_that_raise_are_counted_and_asked_again() -> None:
    calls = []

    def ask(point: DecisionPoint) -> int:
        calls.append(point)
        if len(calls) < 3:
            raise RuntimeError("no idea")
        return 2

    guard = Guard(CallbackAgent(ask))
    assert [guard.decide(POINT).option for _ in range(3)] == [1, 1, 2]
    assert (guard.report.raised, guard.report.taken, guard.report.overruled) == (2, 1, 2)
    assert guard.report.messages == ["C.tile.j.5: RuntimeError: no idea"]


def test_slow_agents_are_left_behind_until_they_answer() -> None:
    release = threading.Event()

    def ask(point: DecisionPoint) -> int:
        release.wait(30)
        return 2

    guard = Guard(CallbackAgent(ask), seconds=0.05)
    assert [guard.decide(POINT).option for _ in range(2)] == [1, 1]
    assert guard.report.slow == 2
    release.set()
    call = guard._running
    assert call is not None
    call.join(10)
    guard.seconds = 10.0
    assert guard.decide(POINT).option == 2
    assert guard.report.taken == 1


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_a_guard_needs_a_real_time_limit(seconds: float) -> None:
    with pytest.raises(InvalidValueError, match="positive"):
        Guard(StaticAgent(), seconds)
