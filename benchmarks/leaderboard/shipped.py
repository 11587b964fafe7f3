"""MetaSchedule with its own builder and runner: the wall time that a user would otherwise spend.

What it finds is measured by its own clock and checked by nobody, so it is no row of a ranking.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tirgym.benchmarks.leaderboard.folder import BoardFolder, append_line, read_lines
from tirgym.benchmarks.metaschedule_shipped import tune_as_shipped
from tirgym.harness.hardware import fingerprint

__all__ = ["Shipped", "read_shipped", "run_shipped"]

FORMAT = "tirgym-shipped-1"
LIMIT_S = 7200.0

Tune = Callable[[str, int], tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Shipped:
    """One tuning."""

    workload: str
    trials: int
    wall_s: float
    """from its import to its last result"""
    best_us: float | None
    """by its own clock"""
    machine: str
    """fingerprint"""
    made: str


def _tune(uri: str, trials: int) -> tuple[float, float | None]:
    return tune_as_shipped(uri, trials, LIMIT_S)


def run_shipped(
    folder: BoardFolder,
    workloads: Sequence[str],
    trials: int,
    say: Callable[[str], None] = lambda text: None,
    tune: Tune = _tune,
) -> None:
    """Tune each workload that has no line yet."""
    known = {(s.workload, s.trials) for s in read_shipped(folder)[0]}
    for uri in workloads:
        if (uri, trials) not in known:
            say(f"MetaSchedule as shipped on {uri}")
            wall_s, best_us = tune(uri, trials)
            made = datetime.now(UTC).isoformat(timespec="seconds")
            row = Shipped(uri, trials, wall_s, best_us, fingerprint(), made)
            append_line(folder.shipped_path, json.dumps({"format": FORMAT, **asdict(row)}))


def read_shipped(folder: BoardFolder) -> tuple[list[Shipped], list[str]]:
    """Good lines, and what is wrong with the others."""

    def parse(text: str) -> Shipped:
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        try:
            return Shipped(**data)
        except TypeError as error:
            raise ValueError(str(error)) from None

    found, problems = read_lines(folder.shipped_path, parse)
    return [row for _, row in found], problems
