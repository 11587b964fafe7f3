"""`Args`: the options of the language model agent, and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tirgym.baselines.llm.budget import Limits
from tirgym.baselines.llm.endpoint import FORMS
from tirgym.baselines.llm.games import SPACES
from tirgym.errors import InvalidValueError, UnknownNameError

__all__ = ["RECORDED", "Args", "require_args", "typed_options"]

LEAST_PROMPT = 1_500
"""Tokens of the shortest prompt that holds the rules, a program and a history."""
LONGEST_TIMEOUT = 86_400.0
"""Seconds; sockets take no endless ones."""


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the language model agent; budgets of 0 are none."""

    model: str = ""
    """name of the model at the endpoint"""
    base_url: str = ""
    """of the endpoint, such as http://127.0.0.1:8000/v1; "": the client's own default"""
    space: str = "decision"
    """the compiler's open questions, or the action table primitive, macro or both"""
    answers: str = "auto"
    """tools, json, or auto: tool calls where the endpoint has them, else JSON"""
    batch: int = 4
    """programs that one answer may propose"""
    calls: int = 64
    """questions to the model, retries not counted"""
    tokens: int = 500_000
    """prompts and answers together"""
    money: float = 0.0
    """in the currency of the prices"""
    price_in: float = 0.0
    """of a million prompt tokens"""
    price_out: float = 0.0
    """of a million answer tokens"""
    prompt_tokens: int = 6_000
    """of one prompt; inner lines of the program are left out first"""
    answer_tokens: int = 4_096
    """of one answer, thoughts included"""
    timeout: float = 120.0
    """seconds until a request counts as lost"""
    retries: int = 2
    """of a request that is lost, limited (429) or failed (5xx), with backoff"""
    temperature: float = -1.0
    """sent to the endpoint; negative: left to it"""
    branches: int = 1
    """lines of exploration that are asked at the same time and measured in one batch"""
    milestone: int = 2
    """rounds after which branches that fell behind go on from the best program"""
    patience: int = 4
    """rounds in a row that gain less than 5 % before the run returns to the best program"""
    returns: int = 1
    """times that it returns before it ends"""
    looks: int = 2
    """looks ahead that a round answers"""
    costs: bool = True
    """show what the static cost model predicts for each option"""
    transcript: str = ""
    """replay this file, or the one of the workload in this folder; no model is asked"""
    save: str = ""
    """write the transcript to this file, or into this folder; "": in the user's data folder"""


_POSITIVE = (
    "batch", "prompt_tokens", "answer_tokens", "timeout", "branches", "milestone", "patience"
)  # fmt: skip
RECORDED = (
    "space", "batch", "branches", "milestone", "patience", "returns", "looks", "prompt_tokens",
    "answer_tokens", "costs",
)  # fmt: skip
"""Options that decide what is asked; a replay takes them from its transcript."""


def typed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` in the types of `Args`; names and addresses may look like numbers.

    Raises UnknownNameError for an option that there is not, and InvalidValueError for another type.
    """
    kinds = {f.name: type(f.default) for f in fields(Args)}
    made: dict[str, Any] = {}
    for name, value in options.items():
        if name not in kinds:
            raise UnknownNameError("option of agent llm", name, kinds)
        kind = kinds[name]
        text = str(value).lower()
        if kind is bool and text in ("true", "false"):
            value = text == "true"
        elif kind is str:
            value = str(value)
        elif kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            accepted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise InvalidValueError(f"{name} of agent llm", value, accepted)
        made[name] = value
    return made


def require_args(args: Args) -> None:
    """Raise for options out of range."""
    what = "of agent llm"
    if not args.model and not args.transcript:
        accepted = "the name of a model at the endpoint (--model), or a transcript to replay"
        raise InvalidValueError(f"model {what}", args.model, accepted)
    if args.space not in SPACES:
        raise UnknownNameError(f"space {what}", args.space, SPACES)
    if args.answers not in FORMS:
        raise UnknownNameError(f"answers {what}", args.answers, FORMS)
    for name in _POSITIVE:
        if not getattr(args, name) >= 1:
            raise InvalidValueError(f"{name} {what}", getattr(args, name), "at least 1")
    if args.timeout > LONGEST_TIMEOUT:
        accepted = f"at most {LONGEST_TIMEOUT:g} seconds"
        raise InvalidValueError(f"timeout {what}", args.timeout, accepted)
    if not math.isfinite(args.temperature):
        accepted = "a finite number; negative: left to the endpoint"
        raise InvalidValueError(f"temperature {what}", args.temperature, accepted)
    for name in ("retries", "returns", "looks"):
        if getattr(args, name) < 0:
            raise InvalidValueError(f"{name} {what}", getattr(args, name), "at least 0")
    if args.prompt_tokens < LEAST_PROMPT:
        raise InvalidValueError(
            f"prompt_tokens {what}", args.prompt_tokens, f"at least {LEAST_PROMPT}"
        )
    Limits(args.calls, args.tokens, args.money, args.price_in, args.price_out)
