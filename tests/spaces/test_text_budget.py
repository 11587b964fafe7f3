"""Texts that keep to their tokens: outer structure first, and what is left out is said."""

from __future__ import annotations

import re

import pytest
from small import SMALL, make, small_actions

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions import design_space
from tirgym.spaces.decision_text import describe_question
from tirgym.spaces.text import describe
from tirgym.spaces.text_budget import LEAST_TOKENS, Part, count_tokens, elide, fit

NEST = [
    "def main():",
    *(
        line
        for n in range(6)
        for line in (f"    for i{n}:", *(f"        line {n}.{m}" for m in range(9)))
    ),
    "    return",
]
LEFT_OUT = re.compile(r"^ *\.\.\. (\d+) \S.* not shown \.\.\.$")


def hidden(lines: list[str]) -> int:
    return sum(int(m.group(1)) for line in lines if (m := LEFT_OUT.match(line)))


@pytest.mark.parametrize("limit", [120, 250, 400, 600, 800, 10_000])
def test_what_is_left_out_is_counted_and_the_rest_keeps_its_order(limit: int) -> None:
    shown = list(elide(NEST, limit, "lines"))
    assert sum(len(line) + 1 for line in shown) <= limit
    kept = [line for line in shown if not LEFT_OUT.match(line)]
    assert len(kept) + hidden(shown) == len(NEST)
    assert kept == [line for line in NEST if line in kept]


def test_outer_lines_go_before_inner_ones_and_the_ends_before_the_middle() -> None:
    shown = list(elide(NEST, 600, "lines"))
    assert [line for line in shown if not line.startswith("      ")] == [
        line for line in NEST if not line.startswith("      ")
    ]
    first, last = shown.index("    for i0:"), shown.index("    for i5:")
    assert shown[first + 1] == "        line 0.0"
    assert LEFT_OUT.match(shown[shown.index("    for i3:") + 1])
    assert shown[last + 1] == "        line 5.0"


def test_room_that_one_part_does_not_need_goes_to_the_others() -> None:
    short, long = ["one"], [f"line {n}" for n in range(500)]
    text = fit([Part(["head"]), Part(short, 5), Part(long, 1, "lines")], 800)
    assert text.startswith("head\none\nline 0")
    assert 700 < count_tokens(text) <= 800


def test_a_shorter_form_is_taken_only_where_the_long_one_does_not_fit() -> None:
    long = [f"line {n}" for n in range(500)]
    assert fit([Part(long, 1, "lines", shorter=["all lines"])], 500) == "all lines"
    assert fit([Part(["a"], 1, "lines", shorter=["b"])], 500) == "a"


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=f"at least {LEAST_TOKENS}"):
        fit([Part(["a"], 1)], LEAST_TOKENS - 1)
    with pytest.raises(InvalidValueError, match="at least 2001"):
        fit([Part(["x y"] * 667)], 1000)


@pytest.mark.parametrize("tokens", [LEAST_TOKENS, 800, 1500, 6000])
@pytest.mark.parametrize("kernel", sorted(SMALL))
def test_observations_keep_to_their_tokens(kernel: str, tokens: int) -> None:
    actions, program = small_actions(), make(SMALL[kernel], "Split(loop=0, factor=2)")
    mask = actions.mask(program.legal_mask(actions.vocabulary))
    text = describe(program, actions, mask, tokens)
    assert count_tokens(text) <= tokens
    assert text.isascii()
    assert "def main(" in text or tokens == LEAST_TOKENS
    assert "Applied:\n  Split(loop=0, factor=2)" in text
    assert text == describe(program, actions, mask, tokens)
    walk = design_space(make(SMALL[kernel]))
    text = describe_question(walk.program, walk.question, max_tokens=tokens)
    assert count_tokens(text) <= tokens
    assert walk.question is not None
    assert all(option.label in text for option in walk.question.options)


def test_a_long_text_groups_its_actions_and_says_what_is_missing() -> None:
    actions, program = small_actions(), make(SMALL["softmax"])
    mask = actions.mask(program.legal_mask(actions.vocabulary))
    text = describe(program, actions, mask, 700)
    assert "Split(loop=0|" in text
    assert re.search(r"\.\.\. \d+ lines not shown \.\.\.", text)
    assert re.search(rf"Legal actions \({int(mask.sum())}\)", text)
