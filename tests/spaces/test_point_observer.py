"""Policies as decision agents: they see what the environment shows, and the Guard holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small import SMALL, TARGET, make

from tirgym.envs.decision import DecisionEnv
from tirgym.errors import InvalidValueError
from tirgym.harness.decisions import Guard, PolicyAgent, design_space
from tirgym.harness.decisions.retrace import Retrace
from tirgym.spaces.point_observer import PointObserver


class LastLegal:
    """Takes the last legal option, as an array of one; remembers what it saw."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.seen: list[tuple[Any, Any]] = []

    def predict(self, observation: Any, *, action_masks: Any) -> tuple[Any, None]:
        self.seen.append((observation, action_masks))
        last = np.array([np.flatnonzero(action_masks)[-1]])
        return (last if self.answer is None else self.answer), None


@pytest.mark.parametrize("costs", [False, True])
def test_a_policy_sees_what_the_environment_shows(costs: bool) -> None:
    env = DecisionEnv(SMALL["matmul"], arch=TARGET.arch, reward="static", candidate_costs=costs)
    observation, _ = env.reset(seed=0)
    policy = LastLegal()
    agent = PolicyAgent(policy, PointObserver())
    for _ in range(6):
        shown, masks = observation, env.action_masks()
        observation = env.decide(agent)[0]
        for name, array in shown.items():
            np.testing.assert_array_equal(policy.seen[-1][0][name], array)
        np.testing.assert_array_equal(policy.seen[-1][1], masks)
    assert [answer.option for answer in env.walk.answers[:1]] == [
        int(np.flatnonzero(policy.seen[0][1])[-1])
    ]


def test_a_walk_follows_a_policy_to_the_end() -> None:
    policy = LastLegal()
    agent = Guard(PolicyAgent(policy, PointObserver("features")), seconds=None)
    walk = design_space(make(SMALL["softmax"])).follow(agent)
    assert walk.done
    assert agent.report.taken == agent.report.asked == len(walk.answers) == len(policy.seen)


@pytest.mark.parametrize(("answer", "counted"), [(999, "out_of_range"), (0.5, "raised")])
def test_a_policy_that_answers_nonsense_is_overruled(answer: float, counted: str) -> None:
    guard = Guard(PolicyAgent(LastLegal(answer), PointObserver()), seconds=None)
    point = design_space(make(SMALL["matmul"])).point()
    assert guard.decide(point).option == point.default
    assert getattr(guard.report, counted) == 1


def test_points_are_found_again_in_any_order() -> None:
    walk, walks = design_space(make(SMALL["matmul"])), []
    for _ in range(5):
        walks.append(walk)
        walk = walk.answer(len(walk.question.options) - 1 if walk.question else 0)
    retrace = Retrace()
    for number in (3, 1, 4, 0):
        found = retrace.walk(walks[number].point())
        assert found.program.ir_key == walks[number].program.ir_key
        assert found.answers == walks[number].answers


def test_points_that_no_walk_leads_to_are_refused() -> None:
    point = design_space(make(SMALL["matmul"])).point()
    with pytest.raises(InvalidValueError, match="the question after its answers"):
        Retrace().walk(replace(point, key="nothing.asked"))
    with pytest.raises(InvalidValueError, match="those of a walk"):
        Retrace().walk(replace(point, answers=(("nothing.asked", 1),)))
