"""What counts as an answer, and what the others are told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tirgym.baselines.llm.answers import (
    LONGEST,
    TOOLS,
    Call,
    Look,
    MalformedAnswerError,
    Proposal,
    Propose,
    Reply,
    Stop,
    follow_up,
    read_answers,
)

ONE = {"base": 3, "actions": ["a = 1"], "predicted_speedup": 2, "why": "since"}
MADE = Propose((Proposal(3, ("a = 1",), 2.0, "since"),))


def text(answer: Any) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ({"proposals": [ONE]}, MADE),
        ([ONE], MADE),
        (ONE, MADE),
        ({"propose": {"proposals": [ONE]}}, MADE),
        (f"```json\n{json.dumps({'proposals': [ONE]})}\n```", MADE),
        (f"Here you are: {json.dumps({'proposals': [ONE]})} Good luck!", MADE),
        (f'<think>{{"stop": "no"}}</think>\n{json.dumps({"proposals": [ONE]})}', MADE),
        ({"proposals": [{"actions": "a = 1"}]}, Propose((Proposal(None, ("a = 1",), None, ""),))),
        ({"look": {"base": 1, "actions": ["a = 1"]}}, Look(1, ("a = 1",))),
        ({"stop": "done"}, Stop("done")),
        ({"stop": {"why": "done"}}, Stop("done")),
    ],
)
def test_json_is_read_in_whatever_it_is_wrapped(content: Any, answer: object) -> None:
    assert read_answers(Reply(text(content))) == [(None, answer)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the answer is empty"),
        ("I would tile it", "no answer can be read in 'I would tile it'"),
        ("{" * 50_000, "no answer can be read"),
        ("[" * 50_000, "no answer can be read"),
        ({"plan": 1}, "keys plan"),
        ({"proposals": []}, "expected at least one"),
        ({"proposals": ["a = 1"]}, "is no object"),
        ({"proposals": [{"why": "?"}]}, '"actions" is no list of texts'),
        ({"proposals": [{**ONE, "actions": [1]}]}, '"actions" is no list of texts'),
        ({"proposals": [{**ONE, "base": "best"}]}, "\"base\" is 'best'"),
        ({"proposals": [{**ONE, "base": True}]}, '"base" is True'),
        ({"proposals": [{**ONE, "predicted_speedup": -1}]}, "a number above 0"),
        ({"proposals": [{**ONE, "predicted_speedup": "fast"}]}, "a number above 0"),
        ('{"proposals": [{"actions": ["a"], "predicted_speedup": Infinity}]}', "above 0"),
    ],
)
def test_what_is_no_answer_is_told_what_would_be(content: Any, said: str) -> None:
    with pytest.raises(MalformedAnswerError) as caught:
        read_answers(Reply(text(content)))
    assert said in str(caught.value)
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_answer_that_was_cut_off_is_told_so() -> None:
    with pytest.raises(MalformedAnswerError, match="cut off at the limit of its length"):
        read_answers(Reply('{"proposals": [{"act', finish="length"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Call("1", "measure", "{}"), "no tool 'measure'; expected one of propose, look, stop"),
        (Call("1", "propose", "{"), "the arguments of propose are no JSON"),
        (Call("1", "look", "[]"), "the arguments of look are no object"),
    ],
)
def test_a_call_that_is_none_is_told_what_would_be(call: Call, said: str) -> None:
    with pytest.raises(MalformedAnswerError, match=said):
        read_answers(Reply(calls=(call,)))


def test_each_call_of_a_reply_is_an_answer_and_gets_its_own_result() -> None:
    calls = (
        Call("a", "look", json.dumps({"actions": ["x"]})),
        Call("b", "propose", json.dumps({"proposals": [ONE]})),
        Call("c", "stop", json.dumps({"why": "done"})),
    )
    reply = Reply(calls=calls)
    assert [answer for _, answer in read_answers(reply)] == [Look(None, ("x",)), MADE, Stop("done")]
    said, *results = follow_up(reply, {"a": "seen", "b": "taken"}, "?")
    assert [call["id"] for call in said["tool_calls"]] == ["a", "b", "c"]
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in results] == [
        ("tool", "a", "seen"), ("tool", "b", "taken"), ("tool", "c", "?"),
    ]  # fmt: skip


def test_the_tools_are_what_the_protocol_asks_for() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == ["propose", "look", "stop"]
    for tool in TOOLS:
        schema = tool["function"]["parameters"]
        assert set(schema["required"]) <= set(schema["properties"])
    json.dumps(TOOLS)


@pytest.mark.parametrize(
    "answer",
    [
        "```" + "\n" * LONGEST,
        "```\n" + "\n" * 9_000 + "x",
        "```json\n{" + " \n" * 9_000 + "x```",
        "<think>" * (LONGEST // 7),
        "<think>" * 9_000 + "</think>" * 9_000,
        "```" * (LONGEST // 3),
    ],
)
def test_an_answer_that_runs_away_is_read_in_no_time(answer: str) -> None:
    """A guard against hanging, far above what it takes: with cubic time these take hours."""
    began = time.process_time()
    with pytest.raises(MalformedAnswerError):
        read_answers(Reply(answer))
    assert time.process_time() - began < 60


def test_closed_thoughts_are_left_out_and_others_are_not() -> None:
    made = json.dumps({"stop": "done"})
    for wrapped in (
        f'<think>{{"stop": "a"}}</THINK>{made}<thinking>{{"stop": "b"}}</thinking>',
        f"<think>{made}",
    ):
        assert read_answers(Reply(wrapped)) == [(None, Stop("done"))]


@pytest.mark.parametrize("predicted", ["1e308", "5e-324", "-1", "NaN", "1e999", "1" + "0" * 400])
def test_claims_beyond_reason_are_refused(predicted: str) -> None:
    answer = f'{{"proposals": [{{"actions": ["a = 1"], "predicted_speedup": {predicted}}}]}}'
    with pytest.raises(MalformedAnswerError, match="expected a number above 0 and up to 1e"):
        read_answers(Reply(answer))
