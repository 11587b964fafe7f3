"""Whatever fits the OpenAPI schema, or nearly so, is answered or refused: never a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from services import Served, chooser, served

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
"""JSON, and what Python makes of it: NaN, infinities and lone surrogates too."""


class Fitting:
    """Strategies for what fits a schema of the kind that pydantic writes."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def of(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        """Values that fit `schema`."""
        if "$ref" in schema:
            return self.of(self._at(schema["$ref"]))
        if "anyOf" in schema:
            return st.one_of([self.of(part) for part in schema["anyOf"]])
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])
        make = getattr(self, f"_{schema['type']}")
        made: st.SearchStrategy[Any] = make(schema)
        return made

    def _at(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert isinstance(found, Mapping)
        return found

    def _null(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        return st.none()

    def _boolean(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        return st.booleans()

    def _integer(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        return st.integers(schema.get("minimum"), schema.get("maximum"))

    def _number(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        low = schema.get("exclusiveMinimum", schema.get("minimum"))
        return st.floats(
            low,
            schema.get("maximum"),
            exclude_min="exclusiveMinimum" in schema,
            allow_nan=False,
            allow_infinity=False,
        )

    def _string(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        least = schema.get("minLength", 0)
        return st.text(min_size=least, max_size=min(schema.get("maxLength", 12), 12))

    def _array(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        least = schema.get("minItems", 0)
        return st.lists(self.of(schema["items"]), min_size=least, max_size=least + 2)

    def _object(self, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
        if "properties" not in schema:
            return st.dictionaries(
                st.text(max_size=8), self.of(schema["additionalProperties"]), max_size=3
            )
        fields = {name: self.of(part) for name, part in schema["properties"].items()}
        required = {name: fields.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=fields)


def broken(data: st.DataObject, message: Any) -> Any:
    """`message` with one place changed to anything, left out, or added."""
    places: list[tuple[Any, Any]] = []

    def visit(value: Any) -> None:
        keys = value if isinstance(value, dict) else range(len(value))
        for key in list(keys):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                visit(value[key])

    visit(message)
    holder, key = data.draw(st.sampled_from(places))
    how = data.draw(st.sampled_from(["change", "leave out", "add"]))
    if how == "change" or isinstance(holder, list):
        holder[key] = data.draw(anything)
    elif how == "leave out":
        del holder[key]
    else:
        holder[data.draw(st.text(st.characters(), max_size=8))] = data.draw(anything)
    return message


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served(chooser(0)) as service:
        yield service


@pytest.fixture(scope="module")
def document(service: Served) -> dict[str, Any]:
    found = json.loads(service.get("/openapi.json").content)
    assert isinstance(found, dict)
    return found


def request_schema(document: Mapping[str, Any], path: str) -> Any:
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]


def checked(service: Served, document: Mapping[str, Any], path: str, body: bytes) -> int:
    """The status, which the document must know with the body that came."""
    response = service.post(path, body)
    assert response.status < 500, response.content
    known = document["paths"][path]["post"]["responses"][str(response.status)]
    schema = known["content"]["application/json"]["schema"]
    told = json.loads(response.content)
    jsonschema.Draft202012Validator({**document, **schema}).validate(told)
    if response.status != 200:
        assert told["error"]["message"]
        assert "\n" not in told["error"]["message"]
    return response.status


@pytest.mark.parametrize("path", ["/v1/decision", "/v1/decisions"])
def test_what_fits_the_schema_is_answered(
    service: Served, document: dict[str, Any], path: str
) -> None:
    strategy = Fitting(document).of(request_schema(document, path))

    @EXAMPLES
    @given(strategy)
    def run(message: Any) -> None:
        status = checked(service, document, path, json.dumps(message).encode())
        assert status in (200, 408, 422)
        for request in message.get("requests", [message]):
            mend(request)
        assert checked(service, document, path, json.dumps(message).encode()) == 200

    run()


def mend(request: Any) -> None:
    """What a schema cannot say: a kind, a default among the options, time to answer."""
    request.pop("budget_ms", None)
    point = request["decision_point"]
    if isinstance(point, str):
        request["decision_point"] = "tile"
    else:
        point["kind"] = point.get("kind") or "tile"
        point["default_option_index"] = 0


@pytest.mark.parametrize("path", ["/v1/decision", "/v1/decisions"])
def test_what_nearly_fits_is_answered_or_refused(
    service: Served, document: dict[str, Any], path: str
) -> None:
    strategy = Fitting(document).of(request_schema(document, path))

    @EXAMPLES
    @given(st.data(), strategy)
    def run(data: st.DataObject, message: Any) -> None:
        checked(service, document, path, json.dumps(broken(data, message)).encode())

    run()


@EXAMPLES
@given(st.sampled_from(["/v1/decision", "/v1/decisions"]), st.binary(max_size=40) | anything)
def test_what_does_not_fit_is_refused(
    service: Served, document: dict[str, Any], path: str, message: Any
) -> None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    assert checked(service, document, path, body) in (400, 422)
