"""Writes the JSON Schema of the wire format: `python -m tirgym.serving.schema docs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from tirgym.serving.wire import (
    PROTOCOL,
    Batch,
    BatchReply,
    DecisionRequest,
    DecisionResponse,
    Description,
    ErrorReply,
)

__all__ = ["FILE", "main", "protocol_schema", "schema_text"]

FILE = "decision-protocol.schema.json"

_ASKED = (DecisionRequest, Batch)
_TOLD = (DecisionResponse, BatchReply, ErrorReply, Description)


def protocol_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of every message, under `$defs`; a document is one of them."""
    _, schema = models_json_schema(
        [(model, "validation") for model in (*_ASKED, *_TOLD)], ref_template="#/$defs/{model}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": PROTOCOL,
        "description": "Messages between a compiler and an agent that answers its open questions.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in (*_ASKED, *_TOLD)],
        **schema,
    }


def schema_text() -> str:
    """`protocol_schema` as it stands in the file."""
    return json.dumps(protocol_schema(), indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file into the folder that is named; returns the exit code."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tirgym.serving.schema FOLDER, such as docs", file=sys.stderr)
        return 2
    (Path(arguments[0]) / FILE).write_text(schema_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
