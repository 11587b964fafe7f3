"""What is wrong with a message, in one line that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tirgym.serving.wire import PROTOCOLS, Problem

__all__ = ["NO_OBJECT", "problem_of"]

NO_OBJECT = "expected a JSON object, over HTTP with Content-Type: application/json"
"""Of a body that is none."""
_KEPT = 120
"""Characters of a value that are repeated."""


def problem_of(errors: Sequence[Any]) -> Problem:
    """The first of the errors that pydantic found; a version that is not spoken comes before all.

    A newer version may have fields that this one does not know: that is no fault of theirs.
    """
    for error in errors:
        if error["loc"] and error["loc"][-1] == "protocol":
            return _unknown_protocol(error)
    error = errors[0]
    path = _path(error)
    if error["type"] == "json_invalid" or not (path or "ctx" in error):
        return Problem(code="not_json", message=NO_OBJECT)
    field = (error.get("ctx") or {}).get("field") or path
    return Problem(code="bad_field", message=f"{field}: {error['msg']}{_given(error)}", field=field)


def _unknown_protocol(error: Mapping[str, Any]) -> Problem:
    spoken = ", ".join(PROTOCOLS)
    return Problem(
        code="unknown_protocol",
        message=f"protocol: {_shown(error['input'])} is not spoken here; expected {spoken}",
        field=_path(error),
    )


def _path(error: Mapping[str, Any]) -> str:
    """Where it is, such as code_context.candidate_options.0.factor."""
    return ".".join(_shown(part, "") for part in error["loc"] if part != "body")


def _given(error: Mapping[str, Any]) -> str:
    """The value, where it is not a whole part of the message."""
    value = error.get("input")
    plain = isinstance(value, str | int | float) and error["type"] != "at_fault"
    return f", not {_shown(value)}" if plain else ""


def _shown(value: object, quote: str = "'") -> str:
    """A value in one short line of plain characters."""
    text = str(value).encode("unicode_escape").decode("ascii")
    text = text if len(text) <= _KEPT else f"{text[:_KEPT]}…"
    return f"{quote}{text}{quote}" if isinstance(value, str) else text
