"""`tirgym bench`: run agents at equal budgets, verify what they found, report, check submissions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import ArchOption, BackendOption, JsonFlag, ThreadsOption
from tirgym.cli.output import (
    counted,
    note,
    print_json,
    print_table,
    progress_bar,
    result_console,
    say_all,
    short_workload,
    working,
)
from tirgym.cli.subject import chosen_target, named_workload
from tirgym.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from tirgym.benchmarks.leaderboard.folder import BoardFolder
    from tirgym.benchmarks.leaderboard.running import Finished
    from tirgym.benchmarks.leaderboard.verdicts import Verified
    from tirgym.benchmarks.leaderboard.verifying import Step

__all__ = ["compare_boards_command", "report_command", "run_command", "verify_board_command"]

DEFAULT_AGENTS = {
    "a/a": "", "noop": "", "default": "", "vendor-numpy": "", "vendor-torch": "torch",
    "metaschedule": "xgboost", "random": "", "static": "", "greedy": "", "beam": "", "evolutionary": "", "mcts": "",
}  # fmt: skip
"""Rows of a board, and the package that some need."""
SESSIONS = 3

BoardArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder that bench run filled.", show_default=False)
]
SessionsOption = Annotated[
    int, typer.Option("--sessions", min=1, help="Independent processes that measure each answer.")
]

FilesOption = Annotated[
    bool,
    typer.Option(
        "--files", help="The board is one's own: run the Python files that its workloads name."
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Processes that work side by side; only timings take turns, so that searches take longer.",
    ),
]


def run_command(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the board.", show_default=False)
    ],
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agents",
            metavar="NAME,…",
            help="Rows: a/a, noop, default, vendor-numpy, vendor-torch, metaschedule, agents of the "
            "agent table, package.module:Class; options follow a name as NAME,OPTION=VALUE.",
            show_default="all but trained policies, as far as installed",
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="Every kernel of it.", show_default="core-v0")
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload",
            metavar="KERNEL",
            help="A kernel or workload URI; repeatable; instead of a whole suite.",
            show_default=False,
        ),
    ] = None,
    trials: Annotated[
        str, typer.Option("--trials", help="Trial counts; the largest is run.")
    ] = "16,64",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each row.")] = 3,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Time limit of one search.", show_default="none"),
    ] = None,
    shipped: Annotated[
        list[str] | None,
        typer.Option(
            "--shipped",
            metavar="KERNEL",
            help="Also take the wall time of MetaSchedule as it ships there; repeatable.",
            show_default=False,
        ),
    ] = None,
    jobs: JobsOption = 1,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Run agents on workloads at equal budgets; goes on where it was killed."""
    labels = _labels(agents or _installed(DEFAULT_AGENTS))
    counts = _trial_counts(trials)
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InvalidValueError("--seconds", seconds, "a positive number of seconds")
    uris = _workloads(suite, workload)
    apart = tuple(named_workload(name).uri for name in shipped or ())
    sys.path.append(os.getcwd())  # an installed command, unlike python -m, does not look there

    from tirgym.benchmarks.leaderboard.entrants import entrant
    from tirgym.benchmarks.leaderboard.folder import BoardFolder, Plan
    from tirgym.benchmarks.leaderboard.parallel import require_jobs
    from tirgym.benchmarks.leaderboard.running import Conditions, run_board
    from tirgym.kernels_suite.registry import opens_file

    for label in labels:
        entrant(label)
    target = chosen_target(backend, arch, threads)
    folder = BoardFolder(out, files=any(map(opens_file, uris)))
    rows, runs = tuple(dict.fromkeys(labels)), tuple(range(seeds))
    plan = Plan(rows, uris, counts, runs, str(target), seconds)
    require_jobs(jobs, target.num_threads)
    given = Conditions(target, counts, seconds, jobs=jobs)
    with folder.writing(), progress_bar("bench run") as advance:
        before = folder.plan()
        folder.save_plan(plan if before is None else before.merged(plan))

        def tell(row: Finished) -> None:
            text = f"{row.record.agent} on {short_workload(row.record.workload)}"
            advance(row.done, row.total, f"{text}{_left(row.left_s)}")
            if row.record.message:
                note(f"{text}, seed {row.record.seed}: {row.record.outcome}: {row.record.message}")
            elif not sys.stderr.isatty():
                left = _left(row.left_s)
                note(f"{row.done} of {row.total}: {text}, seed {row.record.seed}{left}")

        problems = run_board(folder, given, tell)
        if apart:
            from tirgym.benchmarks.leaderboard.shipped import run_shipped

            run_shipped(folder, apart, counts[-1], note)
        records, _ = folder.records()
    say_all(problems)
    if json:
        outcomes = [record.outcome.value for record in records]
        told = {name: outcomes.count(name) for name in sorted(set(outcomes))}
        print_json(
            {"folder": str(out), "records": len(records), "outcomes": told, "problems": problems}
        )
    else:
        result_console().print(f"{counted(len(records), 'record')} in {folder.records_path}")
        result_console().print(f"next: tirgym bench verify {out}")
    if problems:
        raise typer.Exit(1)


def verify_board_command(
    folder: BoardArgument,
    sessions: SessionsOption = SESSIONS,
    jobs: JobsOption = 1,
    reproduce: Annotated[
        Path | None,
        typer.Option(
            "--reproduce",
            metavar="OUT",
            help="Verify the answers of a board of any machine on this one, into this folder.",
            show_default=False,
        ),
    ] = None,
    files: FilesOption = False,
    json: JsonFlag = False,
) -> None:
    """Replay every answer in clean processes, gate it, measure it anew; exit code 1 if one fails."""
    board = _board(folder, files)
    from tirgym.benchmarks.leaderboard.verifying import verify_board

    if reproduce is not None:
        board = _reproduced(board, reproduce)

    with board.writing(), progress_bar("bench verify") as advance:

        def tell(step: Step) -> None:
            text = f"session {step.session + 1} of {sessions}, {short_workload(step.workload)}"
            advance(step.done, step.total, f"{text}{_left(step.left_s)}")
            if not sys.stderr.isatty():
                note(f"{step.done} of {step.total}: {text}{_left(step.left_s)}")

        found = verify_board(board, sessions, tell, jobs=jobs)
    say_all(found.problems)
    bad = [v for v in found.verified if v.reason and v.standing != "not_applicable"]
    if json:
        standings = [v.standing.value for v in found.verified]
        print_json(
            {
                "folder": str(board.path),
                "sessions": sessions,
                "answers": {name: standings.count(name) for name in sorted(set(standings))},
                "marked": [_marked(v) for v in bad],
                "problems": list(found.problems),
                "sound": found.sound,
            }
        )
    else:
        print_table(
            "",
            ("agent", "workload", ">seed", ">trials", "standing", "why"),
            [
                (v.agent, short_workload(v.workload), v.seed, v.trials, v.standing, v.reason)
                for v in bad
            ],
        )
        good = sum(v.standing == "verified" for v in found.verified)
        result_console().print(f"{good} of {counted(len(found.verified), 'answer')} verified")
    if not found.sound:
        raise typer.Exit(1)


def report_command(
    folder: BoardArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write here.", show_default="the board's folder"),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            "--site",
            metavar="DIR",
            help="Also write a website here, plain files that need no server.",
            show_default="none",
        ),
    ] = None,
    steps: Annotated[
        bool, typer.Option(help="Explain the winning trace of each workload step by step.")
    ] = True,
    measure_steps: Annotated[
        bool, typer.Option("--measure-steps", help="Also measure the program after each step.")
    ] = False,
    files: FilesOption = False,
    json: JsonFlag = False,
) -> None:
    """Make the tables of a board: board.json, ranking.md, ranking.csv, cells.csv; and a website."""
    board = _board(folder, files)
    from tirgym.benchmarks.leaderboard.assembly import assembled
    from tirgym.benchmarks.leaderboard.tables import markdown, write_report

    with working("reading the board") as say:
        made = assembled(board, steps, measure_steps, say)
    written = write_report(made, out or folder)
    if site is not None:
        from tirgym.benchmarks.leaderboard.site import write_site

        written += write_site(made, site)
    say_all(made["problems"])
    if json:
        told: dict[str, Any] = {name: made[name] for name in ("counts", "rankings", "problems")}
        print_json({"files": [str(file) for file in written], **told})
    else:
        result_console().print(markdown(made))
        for file in written:
            result_console().print(f"wrote {file}")
    if made["problems"]:
        raise typer.Exit(1)


def compare_boards_command(
    folder: BoardArgument,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="OTHER", help="Another run of it.", show_default="its own seeds"),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=0.0, help="Percent that count as agreement.")
    ] = 5.0,
    files: FilesOption = False,
    json: JsonFlag = False,
) -> None:
    """Hold two runs of a board against each other, or the seeds of one: do verified speedups agree?"""
    from tirgym.benchmarks.leaderboard.agreement import agreements, by_seed
    from tirgym.benchmarks.leaderboard.assembly import load_board

    share = within / 100.0
    first = load_board(_board(folder, files))
    if other is not None:
        pairs = {"": agreements(first, load_board(_board(other, files)))}
    else:
        pairs = {f"seeds {name}": agreements(*both) for name, both in by_seed(first)}
    if not pairs:
        accepted = "two seeds, or another run to compare with"
        raise InvalidValueError("board to compare", f"{folder}, one seed", accepted)
    if json:
        told = [
            {"pair": name, **found.to_dict(share)} for name, each in pairs.items() for found in each
        ]
        print_json({"within_percent": within, "agreement": told})
        return
    print_table(
        f"verified speedup, second run / first; agreement: within {within:g} %",
        (
            "",
            ">trials",
            "agent",
            ">agree",
            ">of",
            ">left out",
            ">geomean",
            "furthest apart",
            ">ratio",
        ),
        [
            (
                name,
                found.trials,
                found.agent,
                found.within(share),
                found.workloads,
                found.left_out or "",
                f"{found.overall:.3f}",
                short_workload(found.worst[0]),
                f"{found.worst[1]:.3f}",
            )
            for name, each in pairs.items()
            for found in each
        ],
    )


def _marked(verdict: Verified) -> dict[str, Any]:
    return {
        "agent": verdict.agent,
        "workload": verdict.workload,
        "seed": verdict.seed,
        "trials": verdict.trials,
        "standing": verdict.standing.value,
        "reason": verdict.reason,
    }


def _reproduced(board: BoardFolder, out: Path) -> BoardFolder:
    from tirgym.benchmarks.leaderboard.folder import BoardFolder
    from tirgym.benchmarks.leaderboard.reproducing import reproduce

    here = BoardFolder(out, files=board.files)
    say_all(reproduce(board, here))
    return here


def _board(path: Path, files: bool) -> BoardFolder:
    from tirgym.benchmarks.leaderboard.folder import BoardFolder

    folder = BoardFolder(path, files=files)
    folder.require()
    return folder


def _installed(rows: Mapping[str, str]) -> list[str]:
    """Rows whose package is there."""
    return [row for row, package in rows.items() if not package or find_spec(package)]


def _labels(texts: Sequence[str]) -> list[str]:
    """Rows of "random,mcts,space=macro": an option belongs to the name before it."""
    labels: list[str] = []
    for word in " ".join(texts).replace(",", " ").split():
        if "=" in word and labels:
            labels[-1] += f",{word}"
        else:
            labels.append(word)
    return labels


def _trial_counts(text: str) -> tuple[int, ...]:
    accepted = "whole numbers of at least 1, such as 16,64"
    try:
        counts = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise InvalidValueError("--trials", text, accepted) from None
    if counts[0] < 1:
        raise InvalidValueError("--trials", text, accepted)
    return tuple(counts)


def _workloads(suite: str | None, names: Sequence[str] | None) -> tuple[str, ...]:
    """URIs of a whole suite, or of what is named."""
    from tirgym.kernels_suite.kernel import Workload
    from tirgym.kernels_suite.registry import SUITES, list_kernels

    if names:
        if suite is not None:
            raise InvalidValueError("--suite with --workload", suite, "one of the two")
        return tuple(dict.fromkeys(named_workload(name).uri for name in names))
    suite = suite or next(iter(SUITES))
    if suite not in SUITES:
        raise UnknownNameError("suite", suite, SUITES)
    return tuple(Workload.of(kernel).uri for kernel in list_kernels(suite))


def _left(seconds: float | None) -> str:
    """`, 85 s left`; nothing where it is not known."""
    if seconds is None:
        return ""
    minutes = round(seconds / 60)
    time = f"{seconds:.0f} s" if seconds < 120 else f"{minutes // 60} h {minutes % 60:02} min"
    return f", {time} left"
