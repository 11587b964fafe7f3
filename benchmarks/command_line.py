"""What the command lines of benchmarks share: errors of one line, and rows as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from tirgym.errors import TirgymError, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["print_rows", "run_command"]


def run_command(name: str, command: Callable[..., Any]) -> None:
    """Run a typer command; an error of this package is one line, with exit code 2 for bad usage."""
    try:
        typer.run(command)
    except TirgymError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)


def print_rows(name: str, rows: Sequence[DataclassInstance], as_json: bool) -> None:
    """Print at least one row of a benchmark: under `name` in a JSON object, or as a table."""
    told = [asdict(row) for row in rows]
    if as_json:
        print(json.dumps({name: told}, indent=2))
        return
    table = Table(*told[0])
    for row in told:
        table.add_row(*map(str, row.values()))
    Console().print(table)
