"""Choices: walks through an action table have the form of walks through decision points."""

from __future__ import annotations

import numpy as np
import pytest
from small import SMALL, make
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines.choices import Choices, Steps, begin_choices, draw, nearest_option, position
from tirgym.errors import UnknownNameError
from tirgym.harness.agent import Budget, Search
from tirgym.harness.decisions import Walk
from tirgym.harness.macros import named_vocabulary
from tirgym.harness.search_run import SearchRun

pytestmark = pytest.mark.usefixtures("toy_compiler")


def search() -> Search:
    return SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(4)).search


def test_decision_points_are_walks() -> None:
    assert isinstance(begin_choices(search(), "decision", 8), Walk)


def test_actions_are_offered_with_stop_as_the_default() -> None:
    first = begin_choices(search(), "primitive", 8)
    question = first.question
    assert question is not None
    assert [option.value for option in question.options] == [*range(9), 9]
    assert question.options[question.default].label == "STOP"
    stopped = first.answer(question.default)
    assert stopped.question is None
    assert stopped.program is first.program
    assert [(a.key, a.value) for a in stopped.answers] == [("0.step", 9)]


def test_only_legal_actions_are_offered_up_to_the_depth() -> None:
    state: Choices = begin_choices(search(), "primitive", 3)
    for number in range(3):
        question = state.question
        assert question is not None
        assert question.key == f"{number}.step"
        legal = np.flatnonzero(state.program.legal_mask(toy_vocabulary()))
        assert [option.value for option in question.options[:-1]] == legal.tolist()
        state = state.answer(2)
    assert state.question is None
    assert len(state.program.steps) == 3


def test_a_program_without_legal_actions_has_no_choice() -> None:
    full = toy_start()
    for dial in range(3):
        for by in (4, 4):
            full = full.apply(toy_vocabulary()[3 * dial + [1, 2, 4].index(by)])
    assert Steps(full, toy_vocabulary(), 5).question is None


def test_positions_merge_ways_and_tell_stopped_from_open() -> None:
    first = begin_choices(search(), "primitive", 8)
    one, other = first.answer(0).answer(1), first.answer(1).answer(0)
    assert position(one) == position(other) != position(first)
    question = first.question
    assert question is not None
    assert position(first.answer(question.default)) != position(first)
    walk = begin_choices(search(), "decision", 8)
    assert position(walk.answer(1)) == position(walk.answer(1)) != position(walk.answer(2))


def test_macros_are_single_choices() -> None:
    vocabulary = named_vocabulary("macro")
    start = Steps(make(SMALL["matmul"]), vocabulary, 4)
    question = start.question
    assert question is not None
    labels = [option.label for option in question.options]
    after = start.answer(labels.index("MultiLevelTile"))
    assert len(after.answers) == 1
    assert len(after.program.steps) > 1


def test_a_space_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownNameError, match="decision, primitive, macro, both"):
        begin_choices(search(), "tiles", 8)


def test_the_nearest_option_is_the_smaller_of_equals() -> None:
    question = begin_choices(search(), "decision", 8).question
    assert question is not None
    assert nearest_option(question, 100) == len(question.options) - 1
    assert nearest_option(question, 3) == 3


def test_kinds_with_many_instances_are_not_drawn_more_often() -> None:
    question = Steps(make(SMALL["matmul"]), named_vocabulary("primitive"), 4).question
    assert question is not None
    rng = np.random.default_rng(0)
    labels = [question.options[draw(question, rng)].label for _ in range(400)]
    kinds = {option.label for option in question.options}
    assert set(labels) == kinds
    assert max(map(labels.count, kinds)) < 4 * 400 / len(kinds)
