"""`Signer`: marks lines that this installation measured itself.

A line of sessions that was written by anyone else (an agent, a submitter, another machine) has no valid
mark and is measured again. The key stays in the data folder, where code that runs under this account
can read it: agents that are not trusted run under another.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.errors import EvaluationError

__all__ = ["Signer"]

FIELD = "mark"
_BYTES = 32


class Signer:
    """With the key at `path`, which is made when there is none; by default that of this user."""

    def __init__(self, path: Path | None = None) -> None:
        self._key = _key(settings.data_dir() / "bench.key" if path is None else path)

    def signed(self, data: Mapping[str, Any]) -> str:
        """`data` as one line of JSON with a mark."""
        return json.dumps({**data, FIELD: self._mark(data)}, separators=(",", ":"))

    def opened(self, text: str) -> dict[str, Any]:
        """The data of a line; raises ValueError unless this installation made it, as it is."""
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("not a JSON object: damaged or half-written") from None
        data: dict[str, Any] = loaded if isinstance(loaded, dict) else {}
        mark = str(data.pop(FIELD, ""))
        if not hmac.compare_digest(mark.encode(), self._mark(data).encode()):
            raise ValueError("not measured by this installation, or changed since")
        return data

    def _mark(self, data: Mapping[str, Any]) -> str:
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _key(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) != _BYTES:
            text = f"{path} is not the key of this installation; remove it to measure anew"
            raise EvaluationError(text) from None
        return key
    with os.fdopen(descriptor, "wb") as file:
        key = secrets.token_bytes(_BYTES)
        file.write(key)
    return key
