"""The wire format: decision points and recommendations as JSON, in messages that name their version.

These are the pydantic models of what travels; `convert.py` makes them of `DecisionPoint` and
`Recommendation` and back. Their JSON Schema stands in `docs/decision-protocol.schema.json`.

Fields that a model does not name are refused in what is asked, since a misspelt one would have no
effect, and ignored in what is answered.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from tirgym.harness.decisions.point import DecisionKind

__all__ = [
    "MAX_BATCH",
    "PROTOCOL",
    "PROTOCOLS",
    "Batch",
    "BatchReply",
    "Candidate",
    "CodeContext",
    "DecisionRequest",
    "DecisionResponse",
    "Description",
    "ErrorReply",
    "GivenAnswer",
    "HardwareTarget",
    "Node",
    "Problem",
    "Question",
    "Recommended",
]

PROTOCOL: Final = "tirgym-decision/1"
PROTOCOLS = (PROTOCOL,)
"""Versions that are spoken."""

MAX_OPTIONS = 1024
MAX_BATCH = 256
"""Questions in one message."""

Version = Annotated[
    Literal["tirgym-decision/1"],
    Field(description="Version of this format; the current one if left out."),
]
Integer = Annotated[int, Field(strict=True, ge=-(2**53) + 1, le=2**53 - 1)]
"""What every reader of JSON reads exactly."""
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
RequestId = Annotated[
    str,
    Field(min_length=1, max_length=200, description="Chosen by who asks; the answer repeats it."),
]
Fact = Annotated[bool, Field(strict=True)] | Integer | Number | str


class _Asked(BaseModel):
    """Part of a question."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Told(BaseModel):
    """Part of an answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Node(_Asked):
    """The node of the program that is decided about, by the numbers in `ir_snippet`."""

    kind: Literal["loop", "block", "program"] = "program"
    index: Count = 0


class GivenAnswer(_Asked):
    """An answer that was given before."""

    key: Name
    value: Integer = Field(description="`factor` of the option that was taken.")


class Question(_Asked):
    """What is decided."""

    key: Name = Field(
        description="Names the question, such as c.tile.j.5; the same wherever it is met."
    )
    kind: DecisionKind | None = Field(
        default=None, description="If left out, the kind that the key names, such as c.tile.j.5."
    )
    question: str = Field(default="", description="In words.")
    default_option_index: Count = Field(
        default=0, description="The static choice: what the compiler does without advice."
    )
    node: Node = Node()
    block: str = Field(default="", description='Block concerned, "" for the whole program.')
    number: Count = Field(default=0, description="Answers given before.")
    answers: tuple[GivenAnswer, ...] = Field(
        default=(),
        description="Those answers in order: with workload and target all that a program is made of.",
    )

    @model_validator(mode="before")
    @classmethod
    def _kind_of_key(cls, data: Any) -> Any:
        """Take the kind from the key, unless it is given."""
        if not isinstance(data, dict) or data.get("kind") is not None:
            return data
        kind = _kind_in(data.get("key"))
        return data if kind is None else {**data, "kind": kind}


def _kind_in(key: object) -> DecisionKind | None:
    """The only kind that is a part of `key`, or else the only one within it."""
    if not isinstance(key, str):
        return None
    for text in (key.split("."), key):
        kinds = [kind for kind in DecisionKind if kind in text]
        if len(kinds) == 1:
            return kinds[0]
    return None


class HardwareTarget(_Asked):
    """What the program is compiled for."""

    target: str = Field(description="BACKEND/ARCHITECTURE/N threads.")
    facts: dict[str, Fact] = Field(
        default={}, description="The hardware in figures: cores, lanes, bytes of caches, …"
    )


class Candidate(_Asked):
    """One option."""

    option: str = Field(description="In words.")
    factor: Integer = Field(
        description="What it means: a factor, extent or rank; its scale depends on the kind."
    )
    static_cost_estimate: Number | None = Field(
        default=None, description="Predicted µs of the program right after it; null: nobody asked."
    )


class CodeContext(_Asked):
    """The program around the question, and what may be answered."""

    ir_snippet: str = Field(description="Loop nest around the node, a line a loop or block.")
    workload: str = Field(default="", description="URI.")
    hardware_target: Annotated[
        HardwareTarget,
        BeforeValidator(
            lambda value: {"target": value} if isinstance(value, str) else value,
            json_schema_input_type=HardwareTarget | str,
        ),
        Field(description="An object, or its `target` alone as a text."),
    ]
    candidate_options: tuple[Candidate, ...] = Field(min_length=1, max_length=MAX_OPTIONS)


class DecisionRequest(_Asked):
    """One question."""

    protocol: Version = PROTOCOL
    request_id: RequestId
    decision_point: Annotated[
        Question,
        BeforeValidator(
            lambda value: {"key": value} if isinstance(value, str) else value,
            json_schema_input_type=Question | Name,
        ),
        Field(description="An object, or its `key` alone as a text."),
    ]
    code_context: CodeContext
    budget_ms: Positive | None = Field(
        default=None, description="After so many milliseconds nobody waits for the answer any more."
    )

    @model_validator(mode="after")
    def _whole(self) -> DecisionRequest:
        """Hold the static choice against the options, and require a kind."""
        asked, number = self.decision_point, len(self.code_context.candidate_options)
        if asked.kind is None:
            kinds = ", ".join(DecisionKind)
            raise _at_fault("decision_point.kind", f"missing; expected one of {kinds}")
        if asked.default_option_index >= number:
            raise _at_fault(
                "decision_point.default_option_index",
                f"{asked.default_option_index} is not accepted; expected 0 to {number - 1}",
            )
        return self


def _at_fault(field: str, problem: str) -> PydanticCustomError:
    """An error about a field further down, which `problem_of` reads."""
    return PydanticCustomError("at_fault", "{problem}", {"problem": problem, "field": field})


class Recommended(_Told):
    """What to take."""

    selected_option_index: Integer = Field(description="Index into `candidate_options`.")
    confidence: Probability
    predicted_performance_gain: Positive | None = Field(
        default=None, description="Expected speedup over the static choice; null: no claim."
    )


class DecisionResponse(_Told):
    """The answer to one question."""

    protocol: Version = PROTOCOL
    request_id: RequestId
    recommendation: Recommended
    explanation: str = ""


class Problem(_Told):
    """Why there is no answer."""

    code: str = Field(description="One word to branch on.")
    message: str = Field(description="One line that says what would be accepted.")
    field: str | None = Field(default=None, description="Path of the field that is at fault.")


class ErrorReply(_Told):
    """In the place of an answer."""

    protocol: str = PROTOCOL
    request_id: str | None = None
    error: Problem


class Description(_Told):
    """Who answers, and on what terms."""

    protocols: tuple[str, ...] = Field(description="Versions that are spoken.")
    agent: str
    version: str = Field(description="Of tirgym.")
    max_batch: int
    limit_ms: float = Field(description="After which a decision is given up.")


class Batch(_Asked):
    """Several questions."""

    protocol: Version = PROTOCOL
    requests: tuple[DecisionRequest, ...] = Field(min_length=1, max_length=MAX_BATCH)


class BatchReply(_Told):
    """An answer to each, in order."""

    protocol: Version = PROTOCOL
    responses: tuple[DecisionResponse | ErrorReply, ...]
