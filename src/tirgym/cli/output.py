"""What goes where: results on stdout, as tables or as one JSON object; all else on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["note", "print_json", "progress_console", "result_console", "table"]


def result_console() -> Console:
    """Console of results: stdout, plain and 200 columns wide when it is not a terminal."""
    width = None if sys.stdout.isatty() else 200
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)


def progress_console() -> Console:
    """Console of progress and notes: stderr."""
    return Console(file=sys.stderr, highlight=False)


def note(message: str) -> None:
    """Write one line to stderr."""
    print(f"tirgym: {message}", file=sys.stderr)


def print_json(record: Mapping[str, Any]) -> None:
    """Write one JSON object and a newline to stdout; NaN and infinities become null."""
    sys.stdout.write(json.dumps(_plain(record), allow_nan=False, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A rich table; a column whose name starts with ">" is right-aligned."""
    result = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        result.add_column(column.removeprefix(">"), justify="right" if right else "left")
    for row in rows:
        result.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return result
