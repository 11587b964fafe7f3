"""The action space: one table, texts that parse back, masks that `sample` takes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from small import small_actions

from tirgym.errors import InvalidValueError
from tirgym.harness.transforms import parse_transform
from tirgym.spaces.transform_space import STOP


def test_index_transform_and_text_are_one_table() -> None:
    actions = small_actions()
    assert len(actions.table) == actions.n == len(actions.vocabulary) + 1
    for action, text in enumerate(actions.table):
        transform = actions.transform(action)
        assert actions.to_text(action) == text
        assert actions.from_text(text) == action
        assert actions.action(transform) == action
        if transform is not None:
            assert parse_transform(text) == transform
    assert actions.table[actions.stop] == STOP
    assert actions.transform(actions.stop) is None


def test_text_may_be_spaced_and_ordered_otherwise() -> None:
    actions = small_actions()
    plain = actions.from_text("Split(loop=1, factor=4)")
    assert actions.from_text("  Split( factor=4,loop=1 )") == plain
    assert actions.from_text(" STOP() ") == actions.stop


@pytest.mark.parametrize(
    "text", ["Split(loop=1, factor=3)", "Splitt(loop=1, factor=4)", "Split(1, 4)", "", "Split(loop=99, factor=2)"]
)  # fmt: skip
def test_text_that_is_no_action_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidValueError, match="expected") as caught:
        small_actions().from_text(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action", [-1, 10**6])
def test_actions_out_of_range_are_refused(action: int) -> None:
    with pytest.raises(InvalidValueError, match="integer from 0 to"):
        small_actions().to_text(action)


def test_masks_have_stop_and_sample_obeys_them() -> None:
    actions = small_actions()
    legal = np.zeros(len(actions.vocabulary), np.bool_)
    mask = actions.mask(legal)
    assert mask.dtype == np.int8
    actions.seed(0)
    assert {int(actions.sample(mask)) for _ in range(5)} == {actions.stop}
    legal[7] = True
    drawn = {int(actions.sample(actions.mask(legal))) for _ in range(50)}
    assert drawn == {7, actions.stop}
    legal[7] = False
    assert mask.sum() == 1  # a mask is a copy


def test_the_space_pickles_for_vector_environments() -> None:
    actions = small_actions()
    copy = pickle.loads(pickle.dumps(actions))
    assert copy == actions
    assert copy.vocabulary.digest == actions.vocabulary.digest
