"""What a language model may answer: proposals, a look ahead, or the end; as tool calls or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tirgym.spaces.action_text import unfenced

__all__ = [
    "TOOLS",
    "Answer",
    "Call",
    "Look",
    "MalformedAnswerError",
    "Message",
    "Proposal",
    "Propose",
    "Reply",
    "Stop",
    "follow_up",
    "loads_encodable",
    "read_answers",
]

Message = dict[str, Any]
"""One message of a conversation, as the chat completions protocol has it."""

LONGEST = 256 * 1024
"""Characters of an answer that are looked at."""
MOST_CLAIMED = 1e9
"""Speedups beyond it, or below its inverse, are no claims: figures about them would overflow."""

_PROGRAM: Mapping[str, Any] = {
    "base": {
        "type": "integer",
        "description": "number of the measured program to start from; the current one if left out",
    },
    "actions": {
        "type": "array",
        "items": {"type": "string"},
        "description": "what to do to it, in the form that the prompt shows",
    },
}
TOOLS: Sequence[Mapping[str, Any]] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": dict(properties),
                "required": list(required),
            },
        },
    }
    for name, description, properties, required in (
        (
            "propose",
            "Propose programs to be compiled, checked and timed. Each costs one trial.",
            {
                "proposals": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            **_PROGRAM,
                            "predicted_speedup": {
                                "type": "number",
                                "description": "over the unscheduled program",
                            },
                            "why": {"type": "string", "description": "one or two sentences"},
                        },
                        "required": ["actions", "predicted_speedup", "why"],
                    },
                }
            },
            ("proposals",),
        ),
        (
            "look",
            "See a program, what can be done to it and its static cost. Costs no trial.",
            _PROGRAM,
            ("actions",),
        ),
        (
            "stop",
            "End the search: nothing promising is left.",
            {"why": {"type": "string"}},
            ("why",),
        ),
    )
)
"""The tools as the chat completions protocol declares them."""

_NAMES = ("propose", "look", "stop")
_THOUGHT = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FORM = (
    'one JSON object such as {"proposals": [{"actions": ["..."], "predicted_speedup": 2.0, '
    '"why": "..."}]}, {"look": {"actions": ["..."]}} or {"stop": "why"}'
)


class MalformedAnswerError(Exception):
    """An answer that does not say what to do; the message is one line for the model."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from an endpoint."""

    content: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    """why the model ended: "stop", "tool_calls", "length", …"""
    problem: str = ""
    """why there is no answer at all, "" if there is one"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A program to measure, and what the model claims of it."""

    base: int | None
    """number of the program that it starts from; None: the current one"""
    actions: tuple[str, ...]
    predicted: float | None
    """speedup over the unscheduled program, None if the model made no claim"""
    why: str


@dataclass(frozen=True, slots=True)
class Propose:
    """Programs to measure."""

    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """A program to see without measuring it."""

    base: int | None
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The model sees nothing left to gain."""

    why: str


Answer = Propose | Look | Stop


def read_answers(reply: Reply) -> list[tuple[Call | None, Answer]]:
    """The answers of `reply` in order, each with the tool call that gave it.

    Raises MalformedAnswerError with one line that says what would be accepted.
    """
    if reply.problem:
        raise MalformedAnswerError(f"{reply.problem}; expected a tool call, or {_FORM}")
    if reply.calls:
        return [(call, _called(call)) for call in reply.calls]
    data = _json_in(reply.content)
    if data is None:
        short = " ".join(reply.content.split())[:80]
        cut = ", cut off at the limit of its length" if reply.finish == "length" else ""
        said = f"no answer can be read in {short!r}{cut}" if short else f"the answer is empty{cut}"
        raise MalformedAnswerError(f"{said}; expected a tool call, or {_FORM}")
    return [(None, _from_json(data))]


def follow_up(reply: Reply, results: Mapping[str, str], otherwise: str) -> list[Message]:
    """The messages that go on after `reply`: itself, then the result of each call by its id.

    A reply without calls, or a call without a result, is answered by `otherwise`.
    """
    if not reply.calls:
        words = reply.content or "(no answer)"
        return [
            {"role": "assistant", "content": words},
            {"role": "user", "content": otherwise},
        ]
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.calls
    ]
    said: Message = {
        "role": "assistant",
        "content": reply.content or None,
        "tool_calls": calls,
    }
    answers = [
        {"role": "tool", "tool_call_id": call.id, "content": results.get(call.id, otherwise)}
        for call in reply.calls
    ]
    return [said, *answers]


def loads_encodable(text: str) -> Any:
    """`json.loads`, with a question mark for half a character (\\ud800), which no file can hold."""
    data = json.loads(text)
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


def _called(call: Call) -> Answer:
    if call.name not in _NAMES:
        accepted = ", ".join(_NAMES)
        raise MalformedAnswerError(f"there is no tool {call.name!r}; expected one of {accepted}")
    try:
        arguments = loads_encodable(call.arguments[:LONGEST])
    except (ValueError, RecursionError):
        what = f"the arguments of {call.name} are no JSON"
        raise MalformedAnswerError(f"{what}; expected an object as the tool declares") from None
    if not isinstance(arguments, dict):
        raise MalformedAnswerError(f"the arguments of {call.name} are no object; expected one")
    if call.name == "propose":
        return _propose(arguments.get("proposals", arguments))
    return _look(arguments) if call.name == "look" else Stop(_text(arguments.get("why", "")))


def _from_json(data: Any) -> Answer:
    if isinstance(data, list):
        return _propose(data)
    for key, read in (
        ("proposals", _propose),
        ("propose", lambda value: _propose(_inner(value, "proposals"))),
        ("look", _look),
        ("stop", lambda value: Stop(_text(_inner(value, "why")))),
        ("actions", lambda value: _propose([data])),
    ):
        if key in data:
            return read(data[key])
    raise MalformedAnswerError(f"keys {', '.join(map(str, list(data)[:5]))}; expected {_FORM}")


def _inner(value: Any, key: str) -> Any:
    return value[key] if isinstance(value, dict) and key in value else value


def _propose(data: Any) -> Propose:
    if isinstance(data, dict) and "actions" in data:
        data = [data]
    if not isinstance(data, list) or not data:
        raise MalformedAnswerError('"proposals" is no list of proposals; expected at least one')
    return Propose(tuple(_proposal(item) for item in data))


def _proposal(data: Any) -> Proposal:
    base, actions = _program(data)
    predicted = data.get("predicted_speedup")
    number = isinstance(predicted, int | float) and not isinstance(predicted, bool)
    if predicted is not None and not (number and 1 / MOST_CLAIMED <= predicted <= MOST_CLAIMED):
        said = f'"predicted_speedup" is {_text(repr(predicted))}'
        accepted = f"a number above 0 and up to {MOST_CLAIMED:g}, such as 2.5"
        raise MalformedAnswerError(f"{said}; expected {accepted}")
    claim = None if predicted is None else float(predicted)
    return Proposal(base, actions, claim, _text(data.get("why", "")))


def _look(data: Any) -> Look:
    return Look(*_program(data))


def _program(data: Any) -> tuple[int | None, tuple[str, ...]]:
    """Base and actions."""
    if not isinstance(data, dict):
        raise MalformedAnswerError(f'{data!r} is no object; expected one with "actions"')
    base, actions = data.get("base"), data.get("actions")
    if base is not None and (isinstance(base, bool) or not isinstance(base, int)):
        raise MalformedAnswerError(f'"base" is {base!r}; expected the number of a program')
    if isinstance(actions, str):
        actions = [actions]
    if not isinstance(actions, list) or not all(isinstance(text, str) for text in actions):
        raise MalformedAnswerError('"actions" is no list of texts; expected one')
    return base, tuple(actions)


def _text(value: Any) -> str:
    """One line of at most 400 characters."""
    return " ".join(str(value).split())[:400]


def _json_in(text: str) -> Any:
    """The JSON value that `text` is, or the first object in it that is an answer; else None."""
    text = _without_thoughts(text[:LONGEST])
    for candidate in (unfenced(text), *_objects(text)):
        try:
            data = loads_encodable(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict | list):
            return data
    return None


def _without_thoughts(text: str) -> str:
    """`text` without its closed thoughts; each is looked for once."""
    kept, at = [], 0
    while (begun := _THOUGHT.search(text, at)) and (
        ended := _THOUGHT_ENDS.search(text, begun.end())
    ):
        kept.append(text[at : begun.start()])
        at = ended.end()
    return "".join([*kept, text[at:]])


def _objects(text: str) -> Iterator[str]:
    """Texts of the objects in `text` that have the key of an answer."""
    decoder, at, tries = json.JSONDecoder(), text.find("{"), 0
    while at >= 0 and tries < 200:
        tries += 1
        try:
            data, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(data, dict) and {"proposals", "look", "stop", "actions"} & set(data):
                yield text[at:end]
        at = text.find("{", end)
