"""Actions as texts: every one reads back, slips of form are forgiven, the rest is one clear line."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from small import SMALL, TARGET, make, small_actions

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.decisions import Question, design_space
from tirgym.harness.decisions.point import DecisionKind, Option
from tirgym.harness.macros import VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.transforms.base import NodeRef
from tirgym.kernels_suite.registry import list_kernels, load_workload
from tirgym.spaces.action_text import NOTHING, OptionTexts, TransformTexts, grouped
from tirgym.spaces.transform_space import TransformSpace

VECTOR = Question(
    "c.vector",
    DecisionKind.VECTOR,
    "c: vector lanes",
    tuple(Option("none" if n == 1 else f"{n} lanes", n) for n in (1, 2, 4, 8, 16)),
    4,
    NodeRef("loop", 0),
)


def questions(kernel: str) -> list[Question]:
    walk, found = design_space(backend("llvm").start(load_workload(kernel), TARGET)), []
    while walk.question is not None:
        found.append(walk.question)
        walk = walk.answer(walk.question.default)
    return found


@pytest.mark.parametrize("name", VOCABULARY_NAMES)
def test_every_action_of_every_table_reads_back(name: str) -> None:
    actions = TransformSpace(named_vocabulary(name, "llvm"))
    texts = TransformTexts(actions)
    assert texts.texts() == list(actions.table)
    for action, text in enumerate(actions.table):
        assert texts.to_text(action) == text
        assert texts.read(text) == texts.read(f" ```\n{text.upper()}\n``` ") == action


@pytest.mark.parametrize("kernel", [k.name for k in list_kernels("core-v0")])
def test_every_option_of_every_question_reads_back(kernel: str) -> None:
    asked = questions(kernel)
    assert asked
    for question in asked:
        texts = OptionTexts(question)
        for option, text in enumerate(texts.texts()):
            assert "option" not in text.partition("=")[2], "labels of one question differ"
            assert texts.read(text) == texts.read(text.replace(" ", "").upper()) == option
            assert texts.read(str(option)) == option
            listed = f"{option}: {question.options[option].label}"
            assert texts.read(listed) == option


@pytest.mark.parametrize(
    "text",
    [
        "split( factor = 4 ,loop=1 )",
        "`Split(loop=1, factor=4)`",
        '"Split(loop=1, factor=4)".',
        "Action: Split(loop=1, factor=4)",
        "```python\nSplit(loop='1', factor=4)\n```",
        "```Split(loop=1, factor=4)```",
        "```text Split(loop=1, factor=4) ```",
    ],
)
def test_slips_of_form_are_forgiven(text: str) -> None:
    actions = small_actions()
    assert TransformTexts(actions).read(text) == actions.from_text("Split(loop=1, factor=4)")


@pytest.mark.parametrize(
    ("text", "option"),
    [("c.vector = 16 lanes", 4), ("C.VECTOR=16", 4), ("c.vector = '8lanes'", 3), ("16 lanes", 4),
     ("4", 4), ("option 0", 0), ("none", 0), ("c.vector = option 2", 2), ("c.vector = 4", 2)],
)  # fmt: skip
def test_an_option_is_read_by_label_value_or_number(text: str, option: int) -> None:
    assert OptionTexts(VECTOR).read(text) == option


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("", "such as Split"),
        ("please split loop 1", "such as Split"),
        ("Splitt(loop=1, factor=4)", r"one of Split\(loop=0\|1\|2, factor=2\|4\)"),
        ("Split(loop=11, factor=4)", r"one of Split\(loop=0\|1\|2, factor=2\|4\)"),
        ("Split(loop=1, factor=3)", r"one of Split\(loop=0\|1\|2, factor=2\|4\)"),
        ("Split(1, 4)", r"one of Split\("),
        ("Split(loop=1, factor=4); STOP", r"one of Split\("),
        ("x" * 5000, "such as Split"),
        ("```" + "\n" * 100_000 + "x", "such as Split"),
        ("```\n" + " \n" * 100_000 + "x```", "such as Split"),
    ],
)
def test_what_is_no_legal_action_is_answered_by_what_would_be(text: str, accepted: str) -> None:
    program, actions = make(SMALL["matmul"]), small_actions()
    mask = actions.mask(program.legal_mask(actions.vocabulary))
    with pytest.raises(InvalidValueError, match=accepted) as caught:
        TransformTexts(actions, mask).read(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 900


@pytest.mark.parametrize(
    "text", ["", "5", "c.vector = 3", "c.vector = 5 lanes", "b.vector = 16 lanes", "4: 8 lanes", "9" * 99]
)  # fmt: skip
def test_what_is_no_option_is_answered_by_the_options(text: str) -> None:
    expected = r"expected c\.vector = one of: none, 2 lanes, 4 lanes, 8 lanes, 16 lanes"
    with pytest.raises(InvalidValueError, match=expected):
        OptionTexts(VECTOR).read(text)


def test_a_masked_action_is_read_only_where_illegal_ones_are_asked_for() -> None:
    mask = np.array([1, 0, 0, 0, 1], np.int8)
    texts = OptionTexts(VECTOR, mask)
    assert texts.texts() == ["c.vector = none", "c.vector = 16 lanes"]
    assert texts.read("8 lanes", legal=False) == 3
    with pytest.raises(InvalidValueError, match="one of: none, 16 lanes"):
        texts.read("8 lanes")


def test_options_with_one_label_are_told_apart_by_number() -> None:
    alike = Question("k", VECTOR.kind, "", (Option("a", 1), Option("a", 2)), 0, VECTOR.node)
    texts = OptionTexts(alike)
    assert texts.texts() == ["k = option 0", "k = option 1"]
    assert [texts.read(text) for text in texts.texts()] == [0, 1]
    with pytest.raises(InvalidValueError):
        texts.read("a")


def test_once_all_is_decided_there_is_one_action() -> None:
    texts = OptionTexts(None)
    assert texts.texts() == [NOTHING]
    assert [texts.read(text) for text in (NOTHING, "0", "stop")] == [0, 0, 0]
    with pytest.raises(InvalidValueError, match="everything is decided"):
        texts.read("1")
    with pytest.raises(InvalidValueError):
        texts.to_text(1)


@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_grouped_actions_are_exactly_the_legal_ones(kernel: str) -> None:
    program, actions = make(SMALL[kernel], "Split(loop=0, factor=2)"), small_actions()
    texts = TransformTexts(actions, actions.mask(program.legal_mask(actions.vocabulary))).texts()
    lines, unfolded = grouped(texts), []
    assert len(lines) < len(texts)
    for line in lines:
        pieces = re.split(r"=([^,)]*)", line)
        choices = [piece.split("|") if n % 2 else [piece] for n, piece in enumerate(pieces)]
        for parts in product(*choices):
            unfolded.append("".join(f"={p}" if n % 2 else p for n, p in enumerate(parts)))
    assert sorted(unfolded) == sorted(texts)
