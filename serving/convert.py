"""Between decision points and messages, without loss."""

from __future__ import annotations

import math

import numpy as np
from pydantic import ValidationError

from tirgym.errors import AgentError
from tirgym.harness.decisions.point import DecisionPoint, Option, Recommendation
from tirgym.harness.transforms.base import NodeRef
from tirgym.serving.problems import problem_of
from tirgym.serving.wire import (
    Candidate,
    CodeContext,
    DecisionRequest,
    DecisionResponse,
    GivenAnswer,
    HardwareTarget,
    Node,
    Question,
    Recommended,
)

__all__ = ["MAX_EXPLANATION", "request_of", "response_of", "to_point", "to_recommendation"]

MAX_EXPLANATION = 8192
"""Characters; longer explanations are cut."""


def request_of(
    point: DecisionPoint, request_id: str, budget_ms: float | None = None
) -> DecisionRequest:
    """`point` as a message. A cost that is no finite number travels as null: JSON has no other."""
    return DecisionRequest(
        request_id=request_id,
        decision_point=Question(
            key=point.key,
            kind=point.kind,
            question=point.text,
            default_option_index=point.default,
            node=Node.model_validate(point.node._asdict()),
            block=point.block,
            number=point.number,
            answers=tuple(GivenAnswer(key=key, value=value) for key, value in point.answers),
        ),
        code_context=CodeContext(
            ir_snippet=point.snippet,
            workload=point.workload,
            hardware_target=HardwareTarget(target=point.target, facts=dict(point.hardware)),
            candidate_options=tuple(
                Candidate(option=o.label, factor=o.value, static_cost_estimate=_finite(o.cost_us))
                for o in point.options
            ),
        ),
        budget_ms=budget_ms,
    )


def to_point(request: DecisionRequest) -> DecisionPoint:
    """The decision point that `request` carries."""
    asked, context = request.decision_point, request.code_context
    assert asked.kind is not None  # the request was validated
    return DecisionPoint(
        key=asked.key,
        kind=asked.kind,
        text=asked.question,
        options=tuple(
            Option(c.option, c.factor, c.static_cost_estimate) for c in context.candidate_options
        ),
        default=asked.default_option_index,
        node=NodeRef(asked.node.kind, asked.node.index),
        block=asked.block,
        snippet=context.ir_snippet,
        workload=context.workload,
        target=context.hardware_target.target,
        hardware=context.hardware_target.facts,
        number=asked.number,
        answers=tuple((answer.key, answer.value) for answer in asked.answers),
    )


def response_of(answer: object, request: DecisionRequest) -> DecisionResponse:
    """`answer` as a message; raises AgentError if it is none to the question of `request`."""
    if not isinstance(answer, Recommendation):
        raise AgentError(f"the agent answered {type(answer).__name__}; expected a Recommendation")
    try:
        told = Recommended.model_validate(
            {
                "selected_option_index": _plain(answer.option),
                "confidence": _plain(answer.confidence),
                "predicted_performance_gain": _plain(answer.predicted_gain),
            }
        )
    except ValidationError as error:
        raise AgentError(f"the agent answered {problem_of(error.errors()).message}") from None
    option, last = told.selected_option_index, len(request.code_context.candidate_options) - 1
    if not 0 <= option <= last:
        raise AgentError(f"the agent answered option {option}; expected 0 to {last}")
    return DecisionResponse(
        request_id=request.request_id, recommendation=told, explanation=_text(answer.explanation)
    )


def to_recommendation(response: DecisionResponse) -> Recommendation:
    """The recommendation that `response` carries; whether its option exists is not checked here."""
    told = response.recommendation
    return Recommendation(
        told.selected_option_index,
        told.confidence,
        told.predicted_performance_gain,
        response.explanation,
    )


def _finite(cost_us: float | None) -> float | None:
    return cost_us if cost_us is not None and math.isfinite(cost_us) else None


def _plain(value: object) -> object:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _text(explanation: object) -> str:
    """What JSON can carry of it."""
    text = str(explanation).encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MAX_EXPLANATION else f"{text[:MAX_EXPLANATION]}… (cut)"
