"""`ModelAgent`: what it prefers, how sure it is, and that a point alone is enough to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from small import SMALL, TARGET, make

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions import DecisionPoint, Guard, ModelAgent, Walk, design_space
from tirgym.harness.program import Program


class Opinions:
    """A model whose members are functions of a program."""

    def __init__(self, *members: Callable[[Program], float]) -> None:
        self.members, self.seen = members, 0

    def opinions(self, programs: Sequence[Program]) -> NDArray[np.float64]:
        self.seen += len(programs)
        return np.array([[member(program) for program in programs] for member in self.members])

    def predict_us(self, program: Program) -> float:
        return float(np.exp(-np.mean([member(program) for member in self.members])))


def lanes(program: Program) -> float:
    """Number of vectorized loops."""
    return float(sum(str(step).startswith("Vectorize") for step in program.steps))


def steps(program: Program) -> float:
    return 0.1 * len(program.steps)


@pytest.fixture
def walk() -> Walk:
    return design_space(make(SMALL["add"]))


def values(walk: Walk, model: Opinions) -> list[float]:
    """What the mean of the members says of each option, finished with static choices."""
    number = len(walk.point().options)
    finished = [walk.answer(option).finish().program for option in range(number)]
    return [float(np.mean([m(program) for m in model.members])) for program in finished]


def test_it_takes_the_option_whose_finished_program_is_fastest(walk: Walk) -> None:
    model = Opinions(steps)
    agent = ModelAgent(model)
    chosen = 0
    while walk.question is not None:
        found, point = values(walk, model), walk.point()
        answer = agent.decide(point)
        assert found[answer.option] == max(found)
        assert answer.predicted_gain == pytest.approx(np.exp(max(found) - found[point.default]))
        assert answer.confidence == 1.0
        chosen += answer.option != point.default
        walk = walk.answer(answer.option)
    assert chosen > 0
    assert len(walk.program.steps) >= len(design_space(make(SMALL["add"])).finish().program.steps)


def test_the_static_choice_wins_a_tie(walk: Walk) -> None:
    agent = ModelAgent(Opinions(lambda program: 0.5))
    while walk.question is not None:
        point = walk.point()
        answer = agent.decide(point)
        assert (answer.option, answer.predicted_gain) == (point.default, 1.0)
        walk = walk.answer(answer.option)


def test_confidence_is_the_share_of_members_that_agree(walk: Walk) -> None:
    agent = ModelAgent(Opinions(steps, steps, lambda program: -steps(program)))
    sure: list[float] = []
    while walk.question is not None:
        answer = agent.decide(walk.point())
        sure.append(answer.confidence)
        walk = walk.answer(answer.option)
    assert min(sure) == pytest.approx(2 / 3)
    assert set(np.round(sure, 3)) <= {0.667, 1.0}


def test_a_point_from_another_process_is_enough(walk: Walk) -> None:
    model = Opinions(steps)
    here = walk.follow(ModelAgent(model))
    there = walk
    while there.question is not None:
        point = DecisionPoint.from_json(there.point().to_json())
        there = there.answer(ModelAgent(model).decide(point).option)
    assert there.program.ir_key == here.program.ir_key


def test_it_goes_back_and_on_to_other_walks(walk: Walk) -> None:
    agent = ModelAgent(Opinions(lanes))
    first = walk.follow(agent).program.ir_key
    other = design_space(make(SMALL["softmax"])).follow(agent).program.ir_key
    assert other != first
    assert walk.follow(agent).program.ir_key == first


def test_points_that_no_walk_leads_to_are_refused_and_a_guard_counts_them(walk: Walk) -> None:
    point = walk.point()
    agent = ModelAgent(Opinions(steps))
    with pytest.raises(InvalidValueError, match="the question after its answers"):
        agent.decide(replace(point, key="nobody.asks"))
    with pytest.raises(InvalidValueError, match="answers of the decision point"):
        agent.decide(replace(point, answers=(("nobody.asks", 1),)))
    guard = Guard(agent)
    guard.decide(replace(point, target="a toaster"))
    assert guard.report.raised == 1
    assert "BACKEND/ARCHITECTURE" in guard.report.messages[0]
    assert agent.decide(point).option in range(len(point.options))
    assert point.target == str(TARGET)
