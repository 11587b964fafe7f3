"""The wire format: nothing that an agent needs is lost, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from services import POINT, QUESTION

from tirgym.errors import AgentError
from tirgym.harness.cost import CostModel
from tirgym.harness.decisions import (
    DecisionKind,
    DecisionPoint,
    ModelAgent,
    Option,
    RandomAgent,
    Recommendation,
    design_space,
)
from tirgym.harness.program import Program
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import NodeRef
from tirgym.kernels_suite.registry import load_workload
from tirgym.serving.convert import request_of, response_of, to_point, to_recommendation
from tirgym.serving.exchange import question_bytes, read_answers
from tirgym.serving.problems import problem_of
from tirgym.serving.schema import FILE, main, protocol_schema, schema_text
from tirgym.serving.wire import (
    Batch,
    BatchReply,
    DecisionRequest,
    DecisionResponse,
    ErrorReply,
    Problem,
)

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
DOCS = Path(__file__).resolve().parents[2] / "docs"

whole = st.integers(-(2**53) + 1, 2**53 - 1)
counts = st.integers(0, 10**6)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)
numbers = st.floats(allow_nan=False, allow_infinity=False)
options = st.builds(Option, texts, whole, st.none() | numbers)


@st.composite
def decision_points(draw: st.DrawFn) -> DecisionPoint:
    given_options = tuple(draw(st.lists(options, min_size=1, max_size=5)))
    return DecisionPoint(
        key=draw(names),
        kind=draw(st.sampled_from(DecisionKind)),
        text=draw(texts),
        options=given_options,
        default=draw(st.integers(0, len(given_options) - 1)),
        node=NodeRef(draw(st.sampled_from(["loop", "block", "program"])), draw(counts)),
        block=draw(texts),
        snippet=draw(texts),
        workload=draw(texts),
        target=draw(texts),
        hardware=draw(st.dictionaries(texts, st.booleans() | whole | numbers | texts)),
        number=draw(counts),
        answers=tuple(draw(st.lists(st.tuples(names, whole), max_size=3))),
    )


def typed(point: DecisionPoint) -> list[type]:
    return [type(value) for value in point.hardware.values()]


@EXAMPLES
@given(decision_points())
def test_points_come_back_as_they_were(point: DecisionPoint) -> None:
    body = question_bytes([point], ["q"], 50.0)
    again = to_point(DecisionRequest.model_validate_json(body))
    assert again == point
    assert typed(again) == typed(point)  # 1, 1.0 and True are equal
    assert to_point(DecisionRequest.model_validate(json.loads(body))) == point
    assert b"\n" not in body


@EXAMPLES
@given(
    st.builds(
        Recommendation,
        st.integers(0, 2),
        st.floats(0, 1),
        st.none() | st.floats(0, exclude_min=True, allow_infinity=False),
        texts,
    )
)
def test_recommendations_come_back_as_they_were(answer: Recommendation) -> None:
    response = response_of(answer, request_of(POINT, "q"))
    assert read_answers(response.model_dump_json().encode(), ["q"]) == [answer]


def test_the_questions_of_a_real_walk_come_back_with_their_costs() -> None:
    cost: CostModel = StaticCostModel()
    program = TensorIRProgram.start(load_workload("softmax"), Target("llvm", "skylake-avx512", 1))
    walk, agent = design_space(program), RandomAgent(1)
    points = []
    while walk.question is not None:
        points.append(walk.point(cost))
        walk = walk.answer(agent.decide(points[-1]).option)
    body = question_bytes(points, [str(i) for i in range(len(points))], 50.0)
    again = [to_point(request) for request in Batch.model_validate_json(body).requests]
    assert again == points
    assert all(option.cost_us is not None for option in again[0].options)
    assert ModelAgent(_Flat()).decide(again[-1]).option == points[-1].default  # it can be walked to


class _Flat:
    """A model that finds everything equal."""

    def opinions(self, programs: Any) -> Any:
        return np.zeros((2, len(programs)))

    def predict_us(self, program: Program) -> float:
        return 1.0


@pytest.mark.parametrize("cost", [float("inf"), float("nan"), None])
def test_costs_that_json_does_not_know_travel_as_unknown(cost: float | None) -> None:
    point = DecisionPoint(**{**_fields(POINT), "options": (Option("a", 1, cost),), "default": 0})
    assert to_point(request_of(point, "q")).options == (Option("a", 1, None),)


def _fields(point: DecisionPoint) -> dict[str, Any]:
    return {name: getattr(point, name) for name in DecisionPoint.__dataclass_fields__}


def test_texts_stand_for_the_point_and_the_target() -> None:
    point = to_point(DecisionRequest.model_validate(QUESTION))
    assert (point.key, point.kind, point.default) == ("unroll", DecisionKind.UNROLL, 0)
    assert (point.target, point.hardware) == ("x86-64", {})
    assert point.options == (Option("as it is", 1, 3.5), Option("unroll", 4, None))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("C.tile.j.5", "tile"),
        ("pad_temp.tile.j", "tile"),
        ("loop_unrolling", "unroll"),
        ("vectorize", "vector"),
    ],
)
def test_the_kind_is_taken_from_the_key(key: str, kind: str) -> None:
    request = DecisionRequest.model_validate({**QUESTION, "decision_point": key})
    assert request.decision_point.kind == kind
    told = {"key": key, "kind": "sketch"}
    request = DecisionRequest.model_validate({**QUESTION, "decision_point": told})
    assert request.decision_point.kind == "sketch"


def context(**fields: Any) -> dict[str, Any]:
    return {**QUESTION, "code_context": {**QUESTION["code_context"], **fields}}


WRONG = [
    ({}, "request_id", "required"),
    ({**QUESTION, "request_id": ""}, "request_id", "at least 1"),
    ({**QUESTION, "request_id": 7}, "request_id", "string, not 7"),
    ({**QUESTION, "surprise": 1}, "surprise", "not permitted"),
    ({**QUESTION, "\n": 1}, "\\n", "not permitted"),
    ({**QUESTION, "decision_point": "what"}, "decision_point.kind", "expected one of inline"),
    ({**QUESTION, "decision_point": "tile.pad"}, "decision_point.kind", "expected one of inline"),
    ({**QUESTION, "decision_point": {"key": "x", "kind": "y"}}, "decision_point.kind", "'tile'"),
    (
        {**QUESTION, "decision_point": {"key": "tile", "default_option_index": 2}},
        "decision_point.default_option_index",
        "2 is not accepted; expected 0 to 1",
    ),
    (context(candidate_options=[]), "code_context.candidate_options", "at least 1"),
    (
        context(candidate_options=[{"option": "a", "factor": True}]),
        "code_context.candidate_options.0.factor",
        "valid integer",
    ),
    (
        context(candidate_options=[{"option": "a", "factor": "2"}]),
        "code_context.candidate_options.0.factor",
        "not '2'",
    ),
    (
        context(
            candidate_options=[{"option": "a", "factor": 1, "static_cost_estimate": float("inf")}]
        ),
        "code_context.candidate_options.0.static_cost_estimate",
        "finite",
    ),
    ({**QUESTION, "budget_ms": 0}, "budget_ms", "greater than 0"),
]


@pytest.mark.parametrize(("message", "field", "said"), WRONG)
def test_what_is_wrong_is_named(message: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DecisionRequest.model_validate(message)
    problem = problem_of(caught.value.errors())
    assert (problem.code, problem.field) == ("bad_field", field)
    assert said in problem.message
    assert problem.message.startswith(f"{field}: ")
    assert "\n" not in problem.message


def test_versions_that_are_not_spoken_are_named_before_anything_else() -> None:
    message = {"protocol": "tirgym-decision/2", "query": 1}
    with pytest.raises(ValidationError) as caught:
        DecisionRequest.model_validate(message)
    problem = problem_of(caught.value.errors())
    assert problem.code == "unknown_protocol"
    assert "'tirgym-decision/2' is not spoken here; expected tirgym-decision/1" in problem.message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Recommendation(3), "option 3; expected 0 to 2"),
        (Recommendation(-1), "option -1; expected 0 to 2"),
        (Recommendation(True), "valid integer"),
        (Recommendation(None), "valid integer"),  # type: ignore[arg-type]
        (Recommendation(0, 1.5), "confidence"),
        (Recommendation(0, float("nan")), "confidence"),
        (Recommendation(0, 1.0, float("inf")), "predicted_performance_gain"),
        (Recommendation(0, 1.0, -2.0), "predicted_performance_gain"),
        (None, "NoneType; expected a Recommendation"),
    ],
)
def test_answers_that_are_none_are_not_sent(answer: Any, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        response_of(answer, request_of(POINT, "q"))


def test_numbers_of_numpy_are_sent_and_texts_made_fit() -> None:
    odd = Recommendation(np.int64(2), np.float32(0.5), None, "\ud800" + "x" * 10_000)  # type: ignore[arg-type]
    response = response_of(odd, request_of(POINT, "q"))
    told = to_recommendation(DecisionResponse.model_validate_json(response.model_dump_json()))
    assert (told.option, told.confidence) == (2, 0.5)
    assert told.explanation.endswith("x… (cut)")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "none"),
        (b"[]", "none"),
        (b'{"request_id": "q"}', "recommendation"),
        (b'{"request_id": "q", "recommendation": {"selected_option_index": 0}}', "confidence"),
        (
            b'{"request_id": "r", "recommendation": {"selected_option_index": 0, "confidence": 1}}',
            "other questions",
        ),
        (
            b'{"protocol": "tirgym-decision/9", "request_id": "q", "recommendation": {}}',
            "not spoken",
        ),
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        read_answers(answer, ["q"])


def test_answers_may_say_more_than_this_version_knows() -> None:
    (told,) = read_answers(
        b'{"request_id": "q", "model": "x", "recommendation": '
        b'{"selected_option_index": 1, "confidence": 1, "why": "y"}}',
        ["q"],
    )
    assert told == Recommendation(1)


def test_the_published_schema_is_the_one_that_is_spoken(tmp_path: Path) -> None:
    stale = "docs/decision-protocol.schema.json is old: python -m tirgym.serving.schema docs"
    assert (DOCS / FILE).read_text("utf-8") == schema_text(), stale
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / FILE).read_text("utf-8") == schema_text()


@pytest.mark.parametrize("arguments", [[], ["no-such-folder"]])
def test_the_generator_says_how_it_is_used(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "usage: python -m tirgym.serving.schema FOLDER" in capsys.readouterr().err


def test_every_message_fits_the_schema_and_wrong_ones_do_not() -> None:
    check = jsonschema.Draft202012Validator(protocol_schema())
    request = request_of(POINT, "q", 50.0)
    response = response_of(Recommendation(1, 0.5), request)
    error = ErrorReply(request_id="q", error=Problem(code="a", message="b"))
    for message in (
        request,
        Batch(requests=(request, request)),
        response,
        error,
        BatchReply(responses=(response, error)),
    ):
        check.validate(json.loads(message.model_dump_json()))
    check.validate(QUESTION)
    for wrong, _, _ in WRONG[:5]:
        assert not check.is_valid(wrong)
