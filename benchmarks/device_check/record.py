"""`Record`: rows of a check on disk after each of them; a later run of the same plan goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tirgym.errors import DamagedFileError, TargetMismatchError
from tirgym.harness.whole_file import write_whole

__all__ = ["FILE", "Record"]

FILE = "device_check.json"
_HEAD = ("device", "versions", "plan")


class Record:
    """The file holds `head` (device, versions, plan, …), rows by (part, name), trials by key, and
    what follows from them; it is whole at any time."""

    def __init__(self, folder: Path, head: Mapping[str, Any]) -> None:
        """Takes up what the folder's file holds. Raises DamagedFileError for a file that is none, and
        TargetMismatchError for one of another device, software or plan."""
        self.path = folder / FILE
        self.head: dict[str, Any] = json.loads(_text(head))
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.trials: dict[str, dict[str, Any]] = {}
        self.summary: dict[str, Any] = {}
        if self.path.exists():
            self._take_up()

    def _take_up(self) -> None:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            rows = {(row["part"], row["name"]): row for row in found["rows"]}
            head, trials = found["head"], dict(found["trials"])
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise DamagedFileError(str(self.path), "device check", problem) from None
        for field in _HEAD:
            if head.get(field) != self.head[field]:
                raise TargetMismatchError(
                    f"{self.path} was made with another {field}; name another folder with --out"
                )
        self.rows, self.trials = rows, trials

    def add(self, part: str, name: str, row: Mapping[str, Any]) -> None:
        """Keep a row; one of the same part and name is replaced."""
        self.rows[part, name] = {"part": part, "name": name, **json.loads(_text(row))}
        self.write()

    def add_trial(self, key: str, trial: Mapping[str, Any]) -> dict[str, Any]:
        """Keep a trial; answers it as it reads back."""
        self.trials[key] = json.loads(_text(trial))
        self.write()
        return self.trials[key]

    def write(self) -> None:
        """The whole file anew."""
        content = {
            "head": self.head,
            "summary": self.summary,
            "rows": list(self.rows.values()),
            "trials": self.trials,
        }
        write_whole(self.path, _text(content, indent=1) + "\n")


def _text(value: Any, indent: int | None = None) -> str:
    """JSON without the numbers that it has not: those that are not finite become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
