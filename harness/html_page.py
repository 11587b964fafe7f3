"""Pieces of pages that are one file: data that no script can break out of, and a policy by hashes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["embedded", "fill", "policy_hash"]


def policy_hash(text: str) -> str:
    """The source expression that allows exactly `text` in a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def embedded(data: Any, sort_keys: bool = False) -> str:
    """JSON that no HTML parser can see an end of its element in."""
    text = json.dumps(data, sort_keys=sort_keys, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """`template` with each {{name}} replaced by that part.

    In one pass, so that no part is looked through for the names of others.
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)
