"""What goes where: results on stdout, as tables or as one JSON object; all else on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

__all__ = [
    "counted",
    "note",
    "print_json",
    "print_table",
    "progress_bar",
    "result_console",
    "say_all",
    "short_workload",
    "working",
]


def result_console() -> Console:
    """Console of results: stdout, plain and 200 columns wide when it is not a terminal."""
    width = None if sys.stdout.isatty() else 200
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, nothing if that is no terminal; yields `advance(done, total, text)`."""
    console = Console(file=sys.stderr, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None, text="")

        def advance(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, text=text)

        yield advance


@contextmanager
def working(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr, nothing if that is no terminal; yields a function that renames it."""
    console = Console(file=sys.stderr, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(title) as status:
        yield status.update


def note(message: str) -> None:
    """Write one line to stderr."""
    print(f"tirgym: {message}", file=sys.stderr)


def say_all(messages: Iterable[str]) -> None:
    """Write lines to stderr."""
    for message in messages:
        note(message)


def short_workload(uri: str) -> str:
    """`matmul(m=250, n=264, k=240)` of a workload URI."""
    path, _, query = uri.rpartition("?")
    shape = ", ".join(part for part in query.split("&") if not part.startswith("dtype="))
    return f"{path.rpartition('/')[2]}({shape})" if path else uri


def counted(number: int, noun: str) -> str:
    """`1 kernel`, `3 kernels`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_json(record: Mapping[str, Any]) -> None:
    """Write one JSON object and a newline to stdout; NaN and infinities become null."""
    sys.stdout.write(json.dumps(_plain(record), allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table to stdout; a column whose name starts with ">" is right-aligned.

    Cells are never cut or folded, since they are there to be copied: on a narrow terminal the
    column names fold, then the terminal wraps the lines.
    """
    names = list(columns)
    cells = [[Text("" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max((row[at].cell_len for row in cells), default=0) for at in range(len(names))]
    made = Table(box=None, pad_edge=False, show_header=any(names))
    for column, width in zip(names, widths, strict=True):
        right = column.startswith(">")
        made.add_column(
            column.removeprefix(">"), justify="right" if right else "left", min_width=width
        )
    for row in cells:
        made.add_row(*row)
    console = result_console()
    longest_words = [
        max((len(word) for word in name.removeprefix(">").split()), default=0) for name in names
    ]
    needed = sum(map(max, widths, longest_words)) + 2 * len(names)
    console.width = max(console.width, needed)
    if title:
        console.print(title, soft_wrap=True)
    console.print(made)
