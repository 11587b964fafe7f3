"""`tirgym export --shapes`: several tuned shapes in one library that picks by shape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tirgym.cli.output import counted, note, print_json, print_table, progress_bar, result_console
from tirgym.cli.subject import chosen_target, chosen_workload, is_trace, require_writable
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.baselines.tune_shapes import ShapeProgram
    from tirgym.harness.export import ExportedLibrary
    from tirgym.harness.target import Target
    from tirgym.harness.variants_check import ShapeCheck
    from tirgym.kernels_suite.kernel import Workload

__all__ = ["export_shapes"]


def export_shapes(
    kernel: str,
    out: Path,
    shapes: Sequence[str],
    cover: Sequence[str],
    agent: str | None,
    trials: int,
    seed: int,
    target: tuple[str | None, str | None, int | None],
    check: bool,
    json: bool,
) -> None:
    """Tune, write the library, pass it through the gate shape by shape, measure its dispatcher."""
    from tirgym.harness.backend import backend
    from tirgym.harness.export import require_exportable
    from tirgym.harness.variants import export_variants
    from tirgym.harness.variants_check import dispatch_ns

    if is_trace(kernel):
        raise InvalidValueError("kernel to export with --shapes", kernel, "a kernel, not a trace")
    if trials < 1:
        raise InvalidValueError("--trials", trials, "a whole number of at least 1")
    require_writable(out, "--out")
    tuned, covered = _workloads(kernel, shapes), _workloads(kernel, cover)
    _require_distinct([*tuned, *covered])
    chosen = chosen_target(*target)
    require_exportable(backend(chosen.backend).start(tuned[0], chosen), out)
    programs = _tune(tuned, covered, agent, trials, seed, chosen)
    notes = [{"origin": made.origin, "speedup": made.speedup} for made in programs]
    others = bool(_others([*tuned, *covered])) or not check
    exported = export_variants([made.program for made in programs], out, notes, others)
    checks = _checked(out, [*tuned, *covered], chosen) if check else []
    cost_ns = dispatch_ns(exported.library)
    if json:
        files = {"header": str(exported.header), "metadata": str(exported.metadata)}
        rows = [{**asdict(row), "status": row.status.value} for row in checks]
        figures = {"dispatch_ns": cost_ns, "checks": rows}
        print_json({**exported.info, "library": str(exported.library), **files, **figures})
    else:
        _report(exported, programs, checks, cost_ns)
    if not exported.info["any_shape"]:
        note(_why_no_others(tuned[0].kernel.name, others))
    failed = [row for row in checks if row.status != "passed"]
    for row in failed:
        note(f"error: {row.workload} ({row.variant}): {row.status}: {row.message}")
    if failed:
        for path in (exported.library, exported.header, exported.metadata):
            path.unlink(missing_ok=True)
        note("error: nothing was kept of the library")
        raise typer.Exit(1)


def _workloads(kernel: str, shapes: Sequence[str]) -> list[Workload]:
    return [chosen_workload(kernel, [shape]) for shape in shapes]


def _require_distinct(workloads: Sequence[Workload]) -> None:
    for number, workload in enumerate(workloads):
        if workload in workloads[:number]:
            raise InvalidValueError("--shapes and --cover", str(workload), "each shape once")


def _tune(
    tuned: Sequence[Workload],
    covered: Sequence[Workload],
    agent: str | None,
    trials: int,
    seed: int,
    target: Target,
) -> list[ShapeProgram]:
    from tirgym.baselines.tune_shapes import tune_shapes

    title = f"{counted(len(tuned), 'shape')} of {tuned[0].kernel.name}"
    with progress_bar(title) as advance, redirect_stdout(sys.stderr):

        def tell(workload: Workload, at: Any) -> None:
            done = list(tuned).index(workload) * trials + min(at.used, trials)
            advance(done, len(tuned) * trials, f"{workload}: best {at.best_speedup:.2f}x")

        return tune_shapes(tuned, covered, agent, trials, seed, target=target, progress=tell)


def _checked(library: Path, workloads: Sequence[Workload], target: Target) -> list[ShapeCheck]:
    """The gate at every shape of the library, and at the kernel's own shapes for the rest."""
    from tirgym.harness.variants_check import check_library

    return check_library(library, [*workloads, *_others(workloads)], target)


def _others(workloads: Sequence[Workload]) -> list[Workload]:
    """The kernel's own shapes that are no variants: where the program for the rest is judged."""
    from tirgym.kernels_suite.kernel import Workload

    kernel = workloads[0].kernel
    others = [Workload.of(kernel, shape) for shape in (kernel.tiny_shape, *kernel.holdout)]
    return [workload for workload in others if workload not in workloads]


def _why_no_others(kernel: str, others: bool) -> str:
    if others:
        return f"no program for other shapes: the build of {kernel} needs to know its sizes"
    reason = f"all tiny and holdout shapes of {kernel} are variants, so none is left to check it at"
    return f"no program for other shapes: {reason}"


def _report(
    exported: ExportedLibrary,
    programs: Sequence[ShapeProgram],
    checks: Sequence[ShapeCheck],
    cost_ns: float,
) -> None:
    verdicts = {row.workload: row.status.value for row in checks}
    rows: list[tuple[object, ...]] = [
        (
            made.program.workload,
            made.origin,
            "" if made.speedup is None else f"{made.speedup:.2f}x",
            verdicts.get(made.program.workload.uri, "not checked"),
        )
        for made in programs
    ]
    rest = [row.status.value for row in checks if row.variant == "any shape"]
    if exported.info["any_shape"]:
        status = ", ".join(sorted(set(rest))) or "not checked"
        if status == "passed":
            status = f"passed at {counted(len(rest), 'shape')}"
        rows.append(("any other shape", "unscheduled", "", status))
    print_table("", ("shape", "program", ">speedup", "gate"), rows)
    console = result_console()
    console.print(f"library    {exported.library}, header {exported.header}")
    console.print(f"dispatcher {cost_ns:.0f} ns a call, {counted(len(programs), 'variant')}")
    console.print("Python     tirgym.harness.tuned_library.TunedLibrary(path)(*arrays)")
