"""On what terms a guard asks: batches, confidence, a cache, and rest for agents that keep failing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tirgym.errors import AgentError, AgentTimeoutError, InvalidValueError
from tirgym.harness.decisions import (
    CallbackAgent,
    DecisionKind,
    DecisionPoint,
    Guard,
    Option,
    Recommendation,
    StaticAgent,
)
from tirgym.harness.transforms.base import NodeRef

POINT = DecisionPoint(
    key="a",
    kind=DecisionKind.TILE,
    text="",
    options=tuple(Option(str(value), value) for value in (1, 2, 4)),
    default=1,
    node=NodeRef("loop", 0),
    block="",
    snippet="",
    workload="w",
    target="t",
)


def points(*keys: str) -> list[DecisionPoint]:
    return [replace(POINT, key=key) for key in keys]


class Batching:
    """Answers several at once, with what a function makes of the key."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    def decide(self, point: DecisionPoint) -> Recommendation:
        raise NotImplementedError

    def decide_many(self, points: Sequence[DecisionPoint]) -> list[Any]:
        self.batches.append([point.key for point in points])
        return [self.answer(point.key) for point in points]


class Failing:
    """Counts how often it is asked, and raises what it was given."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def decide(self, point: DecisionPoint) -> Recommendation:
        self.asked += 1
        raise self.error


def test_an_agent_that_takes_batches_is_asked_once() -> None:
    agent = Batching(lambda key: Recommendation({"a": 0, "b": 9, "c": 2}[key]))
    guard = Guard(agent)
    assert [answer.option for answer in guard.decide_many(points("a", "b", "c"))] == [0, 1, 2]
    assert agent.batches == [["a", "b", "c"]]
    assert (guard.report.asked, guard.report.taken, guard.report.out_of_range) == (3, 2, 1)
    assert guard.decide(POINT).option == 0
    assert guard.decide_many([]) == []
    assert agent.batches == [["a", "b", "c"], ["a"]]


def test_one_failed_answer_of_a_batch_leaves_the_others() -> None:
    agent = Batching(lambda key: AgentError("no idea") if key == "b" else Recommendation(2))
    guard = Guard(agent, failures=1)
    assert [answer.option for answer in guard.decide_many(points("a", "b"))] == [2, 1]
    assert (guard.report.raised, guard.report.resting) == (1, 0)
    assert guard.decide(POINT).option == 2


@pytest.mark.parametrize("number", [0, 3])
def test_a_batch_with_another_number_of_answers_is_no_answer(number: int) -> None:
    class Wrong(Batching):
        def decide_many(self, points: Sequence[DecisionPoint]) -> list[Any]:
            return [Recommendation(0)] * number

    guard = Guard(Wrong(None))
    assert [answer.option for answer in guard.decide_many(points("a", "b"))] == [1, 1]
    assert guard.report.raised == 2


def test_agents_without_batches_are_asked_one_by_one() -> None:
    def ask(point: DecisionPoint) -> int:
        if point.key == "b":
            raise RuntimeError("no idea")
        return 2

    guard = Guard(CallbackAgent(ask))
    assert [a.option for a in guard.decide_many(points("a", "b", "c"))] == [2, 1, 2]


@pytest.mark.parametrize(
    ("confidence", "option"),
    [(0.5, 2), (np.float32(0.75), 2), (0.49, 1), (float("nan"), 1), ("high", 1), (None, 1)],
)
def test_answers_of_little_confidence_give_way(confidence: Any, option: int) -> None:
    agent = CallbackAgent(lambda point: Recommendation(2, confidence))
    guard = Guard(agent, least_confidence=0.5)
    assert guard.decide(POINT).option == option
    assert guard.report.unsure == guard.report.overruled == int(option == 1)
    assert Guard(agent).decide(POINT).option == 2  # nobody asks for confidence


def test_the_cache_answers_what_was_asked_in_the_same_context() -> None:
    agent = Batching(lambda key: Recommendation(2, 0.5, 1.5, key))
    guard = Guard(agent, cache=2)
    assert [a.explanation for a in guard.decide_many(points("a", "b", "a"))] == ["a", "b", "a"]
    assert guard.decide(POINT).explanation == "a"
    assert agent.batches == [["a", "b"]]
    assert (guard.report.asked, guard.report.taken, guard.report.cached) == (4, 4, 2)
    guard.decide(replace(POINT, answers=(("earlier", 1),)))  # the same question, another context
    assert agent.batches[1:] == [["a"]]
    guard.decide(points("b")[0])  # used longest ago, and forgotten
    assert agent.batches[2:] == [["b"]]


def test_failures_are_not_cached() -> None:
    answers = [Recommendation(9), Recommendation(2)]
    guard = Guard(CallbackAgent(lambda point: answers.pop(0)), cache=8)
    assert [guard.decide(POINT).option for _ in range(3)] == [1, 2, 2]
    assert (guard.report.out_of_range, guard.report.cached) == (1, 1)


def test_an_agent_that_keeps_failing_is_left_alone_and_tried_again() -> None:
    agent = Failing(AgentTimeoutError("late"))
    guard = Guard(agent, failures=3, retry_s=60.0)
    assert [guard.decide(POINT).option for _ in range(10)] == [1] * 10
    assert agent.asked == 3
    assert (guard.report.slow, guard.report.resting, guard.report.overruled) == (3, 7, 10)
    guard._rests_until = 0.0  # the minute is over
    assert [guard.decide(POINT).option for _ in range(4)] == [1] * 4
    assert agent.asked == 4  # one question tried it
    guard._rests_until = 0.0
    guard.agent = CallbackAgent(lambda point: 2)
    assert [guard.decide(POINT).option for _ in range(2)] == [2, 2]


def test_answers_in_between_keep_the_agent_going() -> None:
    asked = []

    def ask(point: DecisionPoint) -> int:
        asked.append(point)
        if len(asked) % 3:
            raise RuntimeError("no idea")
        return 2

    guard = Guard(CallbackAgent(ask), failures=3)
    assert [guard.decide(POINT).option for _ in range(9)] == [1, 1, 2] * 3
    assert guard.report.resting == 0


def test_without_the_term_failing_agents_are_asked_for_ever() -> None:
    agent = Failing(RuntimeError("no idea"))
    guard = Guard(agent)
    for _ in range(20):
        guard.decide(POINT)
    assert agent.asked == 20


def test_late_batches_have_the_time_of_all_their_questions() -> None:
    release = threading.Event()

    class Slow(Batching):
        def decide_many(self, points: Sequence[DecisionPoint]) -> list[Any]:
            release.wait(0.3 if len(points) > 1 else 60)
            return super().decide_many(points)

    agent = Slow(lambda key: Recommendation(2))
    assert Guard(agent, seconds=0.05).decide(POINT).option == 1
    many = Guard(agent, seconds=0.1).decide_many(points(*map(str, range(200))))
    assert {answer.option for answer in many} == {2}
    release.set()


def test_every_static_choice_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    guard = Guard(Failing(RuntimeError("no idea")), failures=2)
    for _ in range(3):
        guard.decide(POINT)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "static choice, raised: a: RuntimeError: no idea"
    assert "2 failures in a row" in lines[1] + lines[2]
    assert lines[-1].startswith("static choice, resting: a: not asked")
    assert str(guard.report) == "3 asked, 0 taken, 3 static: 2 raised, 1 resting"


@pytest.mark.parametrize(
    ("terms", "what"),
    [
        ({"least_confidence": 1.5}, "least_confidence: 1.5"),
        ({"least_confidence": float("nan")}, "least_confidence: nan"),
        ({"cache": -1}, "cache: -1"),
        ({"failures": 0}, "failures: 0"),
        ({"retry_s": 0.0}, "retry_s: 0.0"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        Guard(StaticAgent(), **terms)
