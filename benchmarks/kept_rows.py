"""`KeptRows`: what a long benchmark has measured, one JSON line each, so that it can go on later."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tirgym.errors import DamagedFileError

__all__ = ["KeptRows"]


class KeptRows:
    """The rows of the file at `path`, which need not exist; each row has the fields `key`.

    A torn last line, of a run that was killed while it wrote, is dropped with a warning. Raises
    DamagedFileError for any other line that is no row.
    """

    def __init__(self, path: Path, what: str, key: tuple[str, ...]) -> None:
        self.path, self._what, self._key = path, what, key
        self.rows: list[dict[str, Any]] = list(self._read())

    def has(self, **fields: Any) -> bool:
        """Whether some row has these values."""
        return any(all(row.get(k) == v for k, v in fields.items()) for row in self.rows)

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep a row, in memory and on disk."""
        text = json.dumps(row)
        self.rows.append(json.loads(text))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        texts = self.path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(texts, 1):
            row = _parse(text)
            if row is not None and set(self._key) <= set(row):
                yield row
            elif number == len(texts):
                print(f"{self.path}: the last line is torn and measured again", file=sys.stderr)
                kept = "".join(line + "\n" for line in texts[:-1])
                self.path.write_text(kept, encoding="utf-8")
            else:
                raise DamagedFileError(str(self.path), self._what, f"line {number} is no row")


def _parse(text: str) -> dict[str, Any] | None:
    try:
        row = json.loads(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
