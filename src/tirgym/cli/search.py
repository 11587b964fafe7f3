"""`tirgym optimize`: search, verify, report."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym.cli.model import load_model
from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    KernelArgument,
    SeedOption,
    ShapeOption,
    ThreadsOption,
)
from tirgym.cli.output import note, print_json, print_table, progress_bar, result_console
from tirgym.cli.records import TIMING_COLUMNS, sessions_text, speedup_text, timing_row
from tirgym.cli.subject import (
    DEFAULT_BACKEND,
    at_home,
    chosen_target,
    chosen_workload,
    require_writable,
)
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from rich.text import Text

    from tirgym.baselines.optimize import OptimizeResult, Progress

__all__ = ["optimize_command"]


def optimize_command(
    kernel: KernelArgument,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            help="random, static, greedy, beam, evolutionary, mcts, llm, ppo-gnn, ppo-mlp, "
            "or package.module:Class.",
            show_default="the strongest",
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            "--space",
            help="What the agent plays: decision (the compiler's open choices), primitive "
            "(single transforms), macro, or both.",
            show_default="the agent's own",
        ),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", help="Programs to build and measure.")] = 64,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", help="Time limit of the search.", show_default="none"),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            metavar="N",
            help="End the search after N trials in a row without a gain of 5 %.",
            show_default="off",
        ),
    ] = None,
    branches: Annotated[
        int,
        typer.Option(
            "--branches",
            metavar="K",
            help="Agents that explore side by side, measured in one batch.",
        ),
    ] = 1,
    seed: SeedOption = 0,
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the trace here.", show_default=False)
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Save a picture of the search here.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE|NAME",
            help="Rank programs by this trained model (tirgym model train) instead of static cost; "
            "with --agent llm, the name of the language model.",
            show_default=False,
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            metavar="URL",
            help="OpenAI-compatible endpoint of --agent llm; the key is in OPENAI_API_KEY.",
            show_default="OpenAI's",
        ),
    ] = None,
    transcript: Annotated[
        Path | None,
        typer.Option(
            "--transcript",
            help="Replay this transcript of --agent llm instead of asking a model.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            help="Trained policy that ppo-gnn or ppo-mlp plays (tirgym train).",
            show_default="the one that comes with tirgym",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of the agent, such as search=beam; repeatable.",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Keep every visited state in this folder, for `tirgym graph`.",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Search for a faster program of a kernel; the answer is checked in full and re-measured."""
    from tirgym.baselines.registry import (
        default_agent,
        in_space,
        make_branches,
        option_names,
        parse_options,
    )
    from tirgym.harness.worker import prestart_workers

    _require_budget(trials, seconds, seed, patience, branches)
    workload = chosen_workload(at_home(kernel, backend), shape)
    prestart_workers(backend or DEFAULT_BACKEND)
    target = chosen_target(backend, arch, threads)
    agent, why = (agent, None) if agent is not None else default_agent(target.backend)
    if ":" in agent:
        sys.path.append(os.getcwd())  # an installed command, unlike python -m, does not look there
    options, vocabulary = in_space(agent, space, target.backend)
    named_options = {"checkpoint": checkpoint, "base_url": base_url, "transcript": transcript}
    if "model" in option_names(agent):
        named_options["model"], model = model, None
    if out is not None and "save" in option_names(agent):
        option = [f"save={out.with_suffix('.llm.jsonl')}", *(option or ())]
    texts = [f"{name}={value}" for name, value in named_options.items() if value is not None]
    options |= parse_options(agent, [*(option or ()), *texts])
    player = make_branches(agent, branches, **options)
    cost = load_model(Path(model), target) if model is not None else None
    if out is not None:
        require_writable(out, "--out")
    if picture is not None:
        _require_picture(picture)
    if record is not None:
        require_writable(record / "record.jsonl", "--record")
    if why is not None:
        note(f"agent: {agent} (default: {why})")

    from tirgym.baselines.optimize import optimize
    from tirgym.harness.run_record import RunRecord

    recorder = RunRecord(record, player.name, seed, on_problem=note) if record else None

    with _progress(f"{workload} with {player.name}") as advance, redirect_stdout(sys.stderr):
        result = optimize(
            workload,
            player,
            trials,
            seconds,
            seed,
            target=target,
            vocabulary=vocabulary,
            cost=cost,
            out=out,
            progress=advance,
            recorder=recorder,
            patience=patience,
        )
    for line in getattr(player, "notes", list)():
        note(line)
    if picture is not None:
        from tirgym.baselines.picture import save_picture

        picture.parent.mkdir(parents=True, exist_ok=True)
        save_picture(result, picture)
    if json:
        files = {
            "trace_file": _text(out),
            "picture_file": _text(picture),
            "model_file": model,
            "record_file": _text(recorder.path if recorder else None),
            **_agent_report(player),
        }
        print_json({**result.to_dict(), **files})
    else:
        _report(result, out, picture)
        if recorder is not None and recorder.path is not None:
            result_console().print(f"record   {recorder.path} (tirgym graph {record} shows it)")
    if result.stopped == "interrupted":
        note("interrupted; what was found until then was verified")
        raise typer.Exit(130)
    if result.predicted_speedup is not None:
        note(f"{result.status}: {result.message}")
    elif result.status != "passed":
        note(f"no number: {result.status}: {result.message}")
        raise typer.Exit(1)


def _require_budget(
    trials: int, seconds: float | None, seed: int, patience: int | None, branches: int
) -> None:
    if trials < 1:
        raise InvalidValueError("--trials", trials, "a whole number of at least 1")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InvalidValueError("--seconds", seconds, "a positive number of seconds")
    if seed < 0:
        raise InvalidValueError("--seed", seed, "a whole number of at least 0")
    if patience is not None and patience < 1:
        raise InvalidValueError("--patience", patience, "a whole number of at least 1")
    if branches < 1:
        raise InvalidValueError("--branches", branches, "a whole number of at least 1")


def _agent_report(player: object) -> dict[str, object]:
    """What an agent reports of itself beside its result."""
    report = getattr(player, "report", None)
    return {"agent_report": report()} if callable(report) else {}


def _require_picture(picture: Path) -> None:
    from importlib.util import find_spec

    from tirgym.baselines.picture import FORMATS

    if picture.suffix.lower() not in FORMATS:
        accepted = f"a file name ending in {' or '.join(FORMATS)}"
        raise InvalidValueError("--picture", str(picture), accepted)
    require_writable(picture, "--picture")
    if find_spec("matplotlib") is None:
        accepted = "an install with the plot extra: pip install 'tirgym[plot]'"
        raise InvalidValueError("--picture", str(picture), accepted)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """A progress bar, or a line for each improvement; yields the callback that moves it."""
    best, terminal = 1.0, sys.stderr.isatty()
    with progress_bar(title) as advance:

        def tell(at: Progress) -> None:
            nonlocal best
            text = f"best {at.best_speedup:.2f}x"
            searching = at.phase == "search"
            advance(at.used, at.trials, text if searching else f"{at.phase} {text}")
            if not terminal and searching and at.best_speedup > best:
                best = at.best_speedup
                note(f"{title}: trial {at.used} of {at.trials}: {text}")

        yield tell


def _report(result: OptimizeResult, out: Path | None, picture: Path | None) -> None:
    """Before/after table, steps, IR diff, and where things were saved."""
    console = result_console()
    _print_times(result)
    console.print()
    if not result.trace.transforms and result.status in ("passed", "semantic_only"):
        console.print("no program was faster than the unscheduled one; more --trials may find one")
    for number, step in enumerate(result.trace.transforms, 1):
        console.print(f"{number:3}. {step}")
    for line in _diff(result.ir_before, result.ir_after):
        console.print(line)
    seconds = result.seconds
    search_s = seconds["search"] + seconds["measure"]
    console.print(f"\nsearched {search_s:.1f} s, {seconds['total']:.1f} s with verification")
    console.print(f"trace    {out or 'not saved (--out trace.json saves it)'}")
    if picture is not None:
        console.print(f"picture  {picture}")


def _print_times(result: OptimizeResult) -> None:
    """What was measured, or what is predicted where nothing is."""
    title = f"{result.workload} on {result.target}"
    if result.predicted_us is not None and result.predicted_speedup is not None:
        start_us = result.predicted_us * result.predicted_speedup
        best = (f"best of {result.trials} trials", f"{result.predicted_us:.2f}")
        rows = [
            ("unscheduled", f"{start_us:.2f}", "1.00x", ""),
            (*best, f"{result.predicted_speedup:.2f}x", result.status),
        ]
        columns = ("not measured: no device", ">predicted µs", ">predicted speedup", "checked")
        print_table(title, columns, rows)
        return
    timed = [timing_row("unscheduled", result.baseline, "1.00x")]
    if result.speedup is not None:
        speedup = speedup_text(result.speedup, result.speedup_ci)
        timed.append(timing_row(f"best of {result.trials} trials", result.best, speedup))
    print_table(title, (*TIMING_COLUMNS, ">speedup"), timed)
    if result.sessions:
        passed = result.speedup is not None
        result_console().print(sessions_text(result.sessions, passed))


def _diff(before: str, after: str) -> Iterator[Text]:
    """Unified diff of two IR texts, coloured."""
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "unscheduled", "best", n=2, lineterm=""
    )
    for line in lines:
        yield Text(line, style=styles.get(line[:1], ""))
