"""The forms of observation: fixed shapes, explicit overflow, what the text says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small import SMALL, make, small_actions

from tirgym.errors import UnknownNameError
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.transforms.base import SlotLimits
from tirgym.spaces.features import FEATURE_NAMES, features
from tirgym.spaces.graph import NodeType, encoder_for
from tirgym.spaces.observation import OBSERVATIONS, make_observation
from tirgym.spaces.padded import PaddedObservation
from tirgym.spaces.text import MAX_CHARACTERS, clip_lines
from tirgym.spaces.transform_space import TransformSpace


def show(form: str, actions: TransformSpace, *steps: str, uri: str = SMALL["matmul"]) -> Any:
    program = make(uri, *steps)
    mask = actions.mask(program.legal_mask(actions.vocabulary))
    graph = encoder_for(program.dialect).encode(program)
    return make_observation(form, actions).observe(program, graph, mask)


@pytest.mark.parametrize("form", sorted(OBSERVATIONS))
@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_observations_lie_in_their_space_and_are_new_each_time(form: str, kernel: str) -> None:
    actions = small_actions()
    space = make_observation(form, actions).space
    one = show(form, actions, uri=SMALL[kernel])
    two = show(form, actions, "Split(loop=0, factor=2)", uri=SMALL[kernel])
    for observation in (one, two):
        assert space.contains(observation)
    assert repr(one) != repr(two)
    if form == "dict":
        again = show(form, actions, uri=SMALL[kernel])
        for name in one:
            np.testing.assert_array_equal(one[name], again[name])
            assert not np.shares_memory(one[name], again[name])


def test_the_padded_form_holds_the_graph_slot_by_slot() -> None:
    actions = small_actions()
    program = make(SMALL["softmax"], "Split(loop=0, factor=2)")
    graph = encoder_for("tensorir").encode(program)
    padded = show("dict", actions, "Split(loop=0, factor=2)", uri=SMALL["softmax"])
    used = np.flatnonzero(padded["node_mask"])
    np.testing.assert_array_equal(padded["nodes"][used], graph.nodes)
    assert not padded["nodes"][padded["node_mask"] == 0].any()
    count = int(padded["edge_mask"].sum())
    assert count == graph.links.shape[1]
    np.testing.assert_array_equal(padded["edge_index"][:, :count], used[graph.links])
    np.testing.assert_array_equal(padded["edge_type"][:count], graph.edge_types)
    np.testing.assert_array_equal(padded["edge_attr"][:count], graph.edges)
    assert not padded["edge_index"][:, count:].any()
    assert not padded["overflow"].any()


def test_padding_to_more_slots_only_moves_the_nodes() -> None:
    """Limits change where nodes stand, never what they say."""
    small, large = small_actions(), small_actions(SlotLimits(max_loops=40, max_blocks=11))
    one, two = show("dict", small), show("dict", large)
    np.testing.assert_array_equal(
        one["nodes"][one["node_mask"] == 1], two["nodes"][two["node_mask"] == 1]
    )
    assert one["nodes"].shape < two["nodes"].shape


def test_each_action_points_at_the_node_it_acts_on() -> None:
    actions = small_actions()
    padded = show("dict", actions, "CacheRead(block=0, read=0)")
    graph = encoder_for("tensorir").encode(make(SMALL["matmul"], "CacheRead(block=0, read=0)"))
    compact = graph.action_nodes(actions.vocabulary)
    used = np.flatnonzero(padded["node_mask"])
    for action in np.flatnonzero(padded["action_mask"]):
        slot = padded["action_node"][action]
        assert padded["node_mask"][slot] == 1
        assert used[compact[action]] == slot
        transform = actions.transform(int(action))
        kind = padded["nodes"][slot, :4].argmax()
        if transform is None:
            assert kind == NodeType.HARDWARE
        else:
            assert NodeType(kind).name.lower() == transform.node.kind
    assert compact.min() == -1  # slots of the table without a loop
    assert compact.max() < len(graph.nodes)


def test_overflow_is_counted_and_never_silent() -> None:
    tiny = small_actions(SlotLimits(max_loops=2, max_blocks=1, factors=(2,)))
    form = PaddedObservation(tiny)
    program = make(SMALL["matmul"], "CacheRead(block=0, read=0)")  # 5 loops, 2 blocks
    graph = encoder_for("tensorir").encode(program)
    mask = tiny.mask(program.legal_mask(tiny.vocabulary))
    padded = form.observe(program, graph, mask)
    assert padded["overflow"].tolist()[:3] == [3, 1, 0]
    lost = padded["overflow"][3]
    assert lost == graph.links.shape[1] - padded["edge_mask"].sum() > 0
    assert form.overflow(graph) == padded["overflow"].sum()
    assert padded["node_mask"][padded["edge_index"][:, padded["edge_mask"] == 1]].all()
    assert form.space.contains(padded)


def test_features_are_pooled_and_blind_to_block_order_of_equal_graphs() -> None:
    first = make(SMALL["matmul"], "Split(loop=0, factor=2)", "Split(loop=3, factor=4)")
    second = make(SMALL["matmul"], "Split(loop=2, factor=4)", "Split(loop=0, factor=2)")
    encoder = encoder_for("tensorir")
    vector = features(encoder.encode(first))
    np.testing.assert_array_equal(vector, features(encoder.encode(second)))
    assert vector.shape == (len(FEATURE_NAMES),) == (len(set(FEATURE_NAMES)),)
    assert vector[FEATURE_NAMES.index("count.loop")] == np.float32(np.log2(6) / 4)
    assert vector[FEATURE_NAMES.index("hot.loop0.reduce")] == 1


def test_the_text_names_program_and_legal_actions() -> None:
    actions = small_actions()
    text = show("text", actions, "Split(loop=0, factor=2)")
    legal = text.split("answer with one of them:\n")[1].splitlines()
    program = make(SMALL["matmul"], "Split(loop=0, factor=2)")
    mask = program.legal_mask(actions.vocabulary)
    assert legal == [str(actions.vocabulary[i]) for i in np.flatnonzero(mask)] + ["STOP"]
    assert "Applied: Split(loop=0, factor=2)" in text
    assert "loop 1: i_1, extent 2, serial" in text
    assert "T.sblock(" in text
    assert text == show("text", actions, "Split(loop=0, factor=2)")


def test_long_texts_are_elided_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirgym.spaces.text._ACTIONS", 1000)
    steps = [f"CacheRead(block={n}, read=0)" for n in range(10)]
    text = show("text", TransformSpace(default_vocabulary()), *steps)
    assert len(text) <= MAX_CHARACTERS
    assert "lines not shown ..." in text
    assert "legal actions not shown ..." in text
    assert text.endswith("STOP")
    lines = [f"line {n}" for n in range(1000)]
    clipped = clip_lines(lines, 500, "lines")
    assert sum(len(line) + 1 for line in clipped) <= 500
    assert clipped[0] == "line 0"
    assert clipped[-1] == "line 999"
    kept = [line for line in clipped if line in lines]
    assert f"... {1000 - len(kept)} lines not shown ..." in clipped


def test_an_unknown_form_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'graph'"):
        make_observation("graf", small_actions())
