"""`tirgym baseline`: what a kernel takes unscheduled, by default, and from a vendor's library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    KernelArgument,
    ShapeOption,
    ThreadsOption,
)
from tirgym.cli.output import print_json, print_table, working
from tirgym.cli.records import TIMING_COLUMNS, speedup_text, timing_row
from tirgym.cli.subject import chosen_target, chosen_workload

if TYPE_CHECKING:
    from tirgym.harness.baselines_report import BaselineRow

__all__ = ["baseline_command"]


def baseline_command(
    kernel: KernelArgument,
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Measure the baselines of a kernel now: naive, the compiler's default, vendor libraries."""
    from dataclasses import asdict

    import typer

    workload = chosen_workload(kernel, shape)
    target = chosen_target(backend, arch, threads)
    from tirgym.harness.baselines_report import measure_baselines
    from tirgym.harness.local_evaluator import LocalEvaluator

    with working("measuring") as say, LocalEvaluator() as evaluator:
        rows = measure_baselines(workload, target, evaluator, lambda name: say(f"measuring {name}"))
    if json:
        print_json(
            {
                "workload": workload.uri,
                "backend": target.backend,
                "target": target.arch,
                "num_threads": target.num_threads,
                "baselines": [asdict(row) for row in rows],
            }
        )
    else:
        columns = (*TIMING_COLUMNS, ">GFLOP/s", ">of roofline", ">speedup", "what")
        title = f"{workload.uri} on {target}"
        print_table(title, columns, [_cells(row) for row in rows])
    if rows[0].status != "passed":
        raise typer.Exit(1)


def _cells(row: BaselineRow) -> list[str]:
    if row.stats is None:
        why = f"{row.status}: {row.message}" if row.status != "none" else row.message
        return timing_row(
            row.name, None, "", "", "", why if row.what == "none" else f"{row.what}: {why}"
        )
    return timing_row(
        row.name,
        row.stats,
        f"{row.gflops:.1f}",
        "" if row.roofline_fraction is None else f"{row.roofline_fraction:.1%}",
        speedup_text(row.speedup, row.speedup_ci),
        row.what,
    )
