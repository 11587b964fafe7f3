"""`tirgym suite lint` and `tirgym gate selftest`: the project's own promises, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import JsonFlag
from tirgym.cli.output import (
    counted,
    print_json,
    print_table,
    progress_bar,
    result_console,
    working,
)
from tirgym.cli.records import speedup_text
from tirgym.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from tirgym.benchmarks.gate_selftest import SelftestReport
    from tirgym.benchmarks.suite_lint import KernelFigures

__all__ = ["lint_command", "selftest_command"]

KernelsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KERNEL", help="Only these kernels.", show_default="all"),
]


def lint_command(
    kernels: KernelsArgument = None,
    suite: Annotated[str, typer.Option("--suite", help="The suite to check.")] = "core-v0",
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny shapes only, nothing is measured.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check every promise that a suite makes about its kernels; exit 1 if one is broken."""
    from tirgym.benchmarks.suite_lint import lint

    with progress_bar("checking kernels") as advance:
        report = lint(kernels or None, quick, advance, suite=suite)
    if json:
        print_json(report.to_json())
    else:
        console = result_console()
        if report.figures:
            rows = [_figures(figures) for figures in report.figures]
            print_table("", ("kernel", ">unscheduled µs", ">known schedule", "label"), rows)
        for finding in report.findings:
            console.print(f"{finding.kernel}: {finding.rule}: {finding.message}")
        count, seconds = len(report.kernels), report.seconds
        console.print(
            f"{len(report.findings)} findings on {counted(count, 'kernel')} in {seconds:.0f} s"
        )
    if not report.ok:
        raise typer.Exit(1)


def _figures(figures: KernelFigures) -> tuple[str, ...]:
    time_us = "" if figures.naive_us is None else f"{figures.naive_us:.1f}"
    speedup = "" if figures.speedup is None else speedup_text(figures.speedup, figures.speedup_ci)
    return figures.kernel, time_us, speedup, "control" if figures.control else ""


def selftest_command(
    kernels: KernelsArgument = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three kernels only.")] = False,
    schedules: Annotated[
        int,
        typer.Option(
            "--schedules",
            min=0,
            help="Also judge this many random schedules of each kernel: none may be rejected "
            "that a second witness finds right.",
        ),
    ] = 0,
    backend: Annotated[
        str,
        typer.Option(
            "--backend", help="llvm: programs are run; triton: Triton IR is executed on NumPy."
        ),
    ] = "llvm",
    json: JsonFlag = False,
) -> None:
    """Break every kernel in every way that makes sense, and see that the gate notices.

    The exit code is 1 unless every mutant is rejected and nothing right is.
    """
    from tirgym.benchmarks.gate_selftest import selftest
    from tirgym.benchmarks.triton_mutants import triton_selftest

    selftests = {"llvm": selftest, "triton": triton_selftest}
    if backend not in selftests:
        raise UnknownNameError("backend with a self-test of its gate", backend, selftests)
    if schedules and backend != "llvm":
        raise InvalidValueError("--schedules", schedules, f"0 for backend {backend}")
    with progress_bar("breaking kernels") as advance:
        report = selftests[backend](kernels or None, quick, advance)
    names = [control.kernel for control in report.controls]
    study = _judge_schedules(names, schedules) if schedules else None
    if json:
        print_json({**report.to_json(), **({"schedules": study} if study else {})})
    else:
        _report_mutants(report)
        if study:
            result_console().print(
                f"{study['judged']} random schedules judged, {study['false_rejections']} right "
                f"ones rejected, {study['unsettled']} rejections unsettled"
            )
    if not report.ok or (study and not study["ok"]):
        raise typer.Exit(1)


def _judge_schedules(kernels: list[str], schedules: int) -> dict[str, Any]:
    """Totals of the study of random schedules."""
    from tirgym.benchmarks.false_rejections import Options, study
    from tirgym.kernels_suite.registry import load_kernel

    with working("judging random schedules") as say:
        found = [load_kernel(name) for name in kernels]
        summary: dict[str, Any] = study(found, Options(schedules), progress=say)["summary"]
    return summary


def _report_mutants(report: SelftestReport) -> None:
    console = result_console()
    counts = report.killed_by("kind")
    rows = [(kind, killed, total) for kind, (killed, total) in counts.items()]
    print_table("", ("mutation", ">killed", ">of"), rows)
    for mutant in report.survivors:
        console.print(f"survived: {mutant.kernel}: {mutant.kind}: {mutant.status}")
    for control in report.controls:
        if control.status != report.right:
            console.print(f"unbroken, but {control.status}: {control.kernel}: {control.message}")
    killed, total = len(report.mutants) - len(report.survivors), len(report.mutants)
    console.print(
        f"{killed} of {total} mutants of {counted(len(report.controls), 'kernel')} rejected "
        f"({report.kill_rate:.1%}) in {report.seconds:.0f} s"
    )
