"""Throughput of the environments: `python -m tirgym.benchmarks.throughput --json`.

Section "static": fresh random episodes of `tirgym/ScheduleStatic-v0` (dict observation, exact mask,
static cost), every state new, against the plain way in the same run: every action of the table
whose nodes exist tried on a copy, and a structural walk over the whole IR; besides, steps/s over all
kernels of the suite. Section "memory": resident memory over many short episodes. Section "measured":
rounds of build, training gate and timing on one matmul, handed over in batches (the next program is
built while one is timed) and one by one in the same run, and what of a round is overhead. Ratios of
one run mean something on a busy machine; absolute numbers do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tirgym.benchmarks.measured_throughput import measured
from tirgym.benchmarks.static_throughput import MemoryReport, memory, static

__all__ = ["main", "run"]


def _table(report: dict[str, Any]) -> Table:
    table = Table("section", "figure", "value")
    for section, figures in report.items():
        for name, value in figures.items():
            table.add_row(section, name, str(value))
    return table


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    section: Annotated[str, typer.Option(help="static, memory, measured or all.")] = "all",
    episodes: Annotated[int, typer.Option(min=5, help="Episodes of the static section.")] = 60,
    memory_episodes: Annotated[int, typer.Option(min=3)] = 2000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the measured section.")] = 40,
) -> None:
    """Measure and print."""
    sections: dict[str, Callable[[], Any]] = {
        "static": lambda: static(episodes),
        "memory": lambda: memory(memory_episodes),
        "measured": lambda: measured(rounds),
    }
    if section != "all" and section not in sections:
        raise typer.BadParameter(f"{section!r}: expected all, {', '.join(sections)}")
    report = {}
    for name, make in sections.items():
        if section in ("all", name):
            made = make()
            report[name] = asdict(made)
            if isinstance(made, MemoryReport):
                report[name]["growth_mib"] = round(made.growth_mib, 1)
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        Console().print(_table(report))


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
