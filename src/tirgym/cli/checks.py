"""`tirgym suite lint` and `tirgym gate selftest`: the project's own promises, checked."""

from __future__ import annotations

from typing import Annotated

import typer

from tirgym.cli.options import JsonFlag
from tirgym.cli.output import print_json, progress_bar, result_console, table

__all__ = ["selftest_command"]

KernelsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="KERNEL…", help="Only these.", show_default="all")
]


def selftest_command(
    kernels: KernelsArgument = None,
    quick: Annotated[bool, typer.Option("--quick", help="Three kernels only.")] = False,
    json: JsonFlag = False,
) -> None:
    """Break every kernel in every way that makes sense, and see that the gate notices.

    The exit code is 1 unless every mutant is rejected and every unbroken kernel passes.
    """
    from tirgym.benchmarks.gate_selftest import selftest

    with progress_bar("breaking kernels") as advance:
        report = selftest(kernels or None, quick, advance)
    if json:
        print_json(report.to_json())
    else:
        console = result_console()
        counts = report.killed_by("kind")
        rows = [(kind, killed, total) for kind, (killed, total) in counts.items()]
        console.print(table("", ("mutation", ">killed", ">of"), rows))
        for mutant in report.survivors:
            console.print(f"survived: {mutant.kernel}: {mutant.kind}: {mutant.status}")
        for control in report.controls:
            if control.status != "passed":
                console.print(
                    f"unbroken, but {control.status}: {control.kernel}: {control.message}"
                )
        killed, total = len(report.mutants) - len(report.survivors), len(report.mutants)
        console.print(
            f"{killed} of {total} mutants of {len(report.controls)} kernels rejected "
            f"({report.kill_rate:.1%}) in {report.seconds:.0f} s"
        )
    if not report.ok:
        raise typer.Exit(1)
