"""`tirgym bench check-submission`: traces of others, checked row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym.cli.options import ArchOption, BackendOption, JsonFlag, ThreadsOption
from tirgym.cli.output import note, print_json, print_table, say_all, short_workload, working
from tirgym.cli.subject import chosen_target

if TYPE_CHECKING:
    from tirgym.benchmarks.leaderboard.submission import Row

__all__ = ["submission_command"]


def submission_command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Traces and a README.", show_default=False),
    ],
    sessions: Annotated[
        int, typer.Option("--sessions", min=0, help="Processes that measure; 0: only replay.")
    ] = 1,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Check a submission row by row; its traces are data, and nothing else in it is run."""
    target = chosen_target(backend, arch, threads)
    from tirgym.benchmarks.leaderboard.submission import check_submission

    with working("checking") as say:

        def tell(row: Row) -> None:
            say(f"checked {row.file}")

        found = check_submission(folder, target, sessions, tell)
    if json:
        rows = [row.to_dict() for row in found.rows]
        told = {"problems": list(found.problems), "missing": list(found.missing), "ok": found.ok}
        print_json({"folder": str(folder), "rows": rows, **told})
    else:
        columns = ("file", "workload", "verdict", ">speedup", ">claimed", "why")
        print_table("", columns, [_cells(row) for row in found.rows])
        say_all(found.problems)
        if found.missing:
            note(f"no good trace at the default shape for: {', '.join(found.missing)}")
    if not found.ok:
        raise typer.Exit(1)


def _cells(row: Row) -> tuple[str, ...]:
    speedup = row.verified.speedup if row.verified else None
    numbers = ("" if number is None else f"{number:.2f}x" for number in (speedup, row.claimed))
    verdict = "ok" if row.ok else "refused"
    return (row.file, short_workload(row.workload), verdict, *numbers, row.reason)
