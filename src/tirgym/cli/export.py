"""`tirgym export`: a checked program as a shared library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    SeedOption,
    ShapeOption,
    SubjectArgument,
    ThreadsOption,
)
from tirgym.cli.output import note, print_json, result_console
from tirgym.cli.subject import (
    chosen_target,
    evaluate_fully,
    is_trace,
    load_subject,
    require_writable,
)
from tirgym.cli.variants import export_shapes
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.program import Program

__all__ = ["export_command"]


def export_command(
    subject: SubjectArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The library to write, such as lib.so.")],
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    check: Annotated[
        bool, typer.Option(help="Run the full correctness gate on the program before writing it.")
    ] = True,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shapes",
            metavar="DIM=SIZE,…",
            help="Tune the kernel at this shape; repeatable. One library holds all shapes, and the "
            "unscheduled program for any other.",
            show_default=False,
        ),
    ] = None,
    cover: Annotated[
        list[str] | None,
        typer.Option(
            "--cover",
            metavar="DIM=SIZE,…",
            help="With --shapes: a shape that takes over the nearest tuned one's transforms.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="With --shapes: who tunes.", show_default="as in optimize"),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", help="With --shapes: trials a shape.")] = 64,
    seed: SeedOption = 0,
    json: JsonFlag = False,
) -> None:
    """Write a trace's program, or an unscheduled kernel, as a C library with header and metadata."""
    from tirgym.harness.export import export_library, require_exportable

    if shapes:
        if shape:
            raise InvalidValueError("--shape", shape[0], "nothing beside --shapes")
        given = (backend, arch, threads)
        export_shapes(subject, out, shapes, cover or (), agent, trials, seed, given, check, json)
        return
    if cover:
        raise InvalidValueError("--cover", cover[0], "nothing without --shapes")

    require_writable(out, "--out")
    program = load_subject(subject, shape, backend, arch, threads).program
    require_exportable(program, out)
    gate = _gate(program) if check else "skipped"
    exported = export_library(program, out)
    if json:
        files = {"header": str(exported.header), "metadata": str(exported.metadata)}
        print_json({**exported.info, "library": str(exported.library), **files, "gate": gate})
        return
    console = result_console()
    for what, path in (
        ("library", exported.library),
        ("header", exported.header),
        ("metadata", exported.metadata),
    ):
        console.print(f"{what:9} {path}")
    for argument in exported.info["arguments"]:
        text = f"{argument['role']:9} {argument['name']}: {argument['dtype']}{argument['shape']}"
        console.print(text)
    console.print(f"function  {exported.function} for {program.target}")
    console.print(f"gate      {gate}")
    if not is_trace(subject):
        note("this is the unscheduled kernel; `tirgym optimize` finds a faster trace to export")


def _gate(program: Program) -> str:
    """Judge `program` in full; answers the status, and ends the command if it is not known to be
    correct in every regime: one that is too slow is cut off after the first."""
    from tirgym.harness.status import Status

    evaluation = evaluate_fully(program)
    if evaluation.status in {Status.PASSED, Status.NOISY, Status.SUSPECT}:
        return "passed"
    host = chosen_target(program.target.backend, None, program.target.num_threads)
    hint = "" if host == program.target else f" (this machine is {host}; see --no-check)"
    if evaluation.status is Status.TOO_SLOW:
        hint = " (so it was not judged on all inputs; see --no-check)"
    note(f"error: not exported: {evaluation.status.value}: {evaluation.message}{hint}")
    raise typer.Exit(1)
