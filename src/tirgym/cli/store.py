"""`tirgym store`: record programs into a measurement store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym import settings
from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    SeedOption,
    ThreadsOption,
    require_seed,
)
from tirgym.cli.output import counted, print_json, print_table, progress_bar, result_console
from tirgym.cli.subject import DEFAULT_BACKEND, chosen_target, named_workload
from tirgym.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from tirgym.kernels_suite.kernel import Workload
    from tirgym.performance_model.recording import Recorded

__all__ = ["record_command"]


def record_command(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KERNEL…",
            help="Suite kernels, workload URIs, or your own (file.py:name).",
            show_default="all of --suite",
        ),
    ] = None,
    suite: Annotated[str, typer.Option("--suite", help="Suite to record, all of it.")] = "core-v0",
    programs: Annotated[
        int, typer.Option("--programs", help="Different programs of each kernel.")
    ] = 64,
    searched: Annotated[
        int,
        typer.Option("--searched", help="Trials of a search of each kernel, on top."),
    ] = 0,
    agent: Annotated[
        str, typer.Option("--agent", help="Who searches: one that plays decision points.")
    ] = "evolutionary",
    space: Annotated[
        str,
        typer.Option(
            "--space",
            help="decision (answers to the compiler's questions), or both (transforms too).",
        ),
    ] = "both",
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Measurement store.", show_default="the user's store"),
    ] = None,
    seed: SeedOption = 0,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Measure varied programs of many kernels into a store; goes on where it stopped."""
    from tirgym.baselines.registry import in_space
    from tirgym.performance_model.draws import RECORDED_SPACES

    for name, number, least in (("--programs", programs, 1), ("--searched", searched, 0)):
        if number < least:
            raise InvalidValueError(name, number, f"a whole number of at least {least}")
    if space not in RECORDED_SPACES:
        raise UnknownNameError("--space", space, RECORDED_SPACES)
    in_space(agent, "decision", backend or DEFAULT_BACKEND)
    require_seed(seed)
    workloads = _workloads(kernels or [], suite)
    target = chosen_target(backend, arch, threads)
    path = store or settings.store_path()

    from tirgym.baselines.recorded_search import record_search
    from tirgym.harness.hardware import cpu_model, fingerprint
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.store_contents import cpu_note
    from tirgym.performance_model.recording import Recording, record

    done = 0
    found = Recording(0, 0, {})
    with progress_bar("recording") as advance, LocalEvaluator(target, path) as evaluator:

        def tell(at: Recorded) -> None:
            nonlocal done
            done += 1
            advance(done, len(workloads) * (programs + searched), at.workload.kernel.name)

        evaluator.store.note(cpu_note(fingerprint()), cpu_model())
        for workload in workloads:
            found += record(
                [workload], target, evaluator, programs, seed, tell,
                store=evaluator.store, space=space,
            )  # fmt: skip
            if searched:
                found += record_search(
                    [workload], target, evaluator, evaluator.store, searched, seed, tell, agent
                )
    if json:
        print_json(
            {
                "store": str(path),
                "backend": target.backend,
                "target": target.arch,
                "num_threads": target.num_threads,
                "kernels": len(workloads),
                "programs": found.programs,
                "reused": found.reused,
                "verdicts": found.verdicts,
            }
        )
        return
    print_table("", ("verdict", ">programs"), list(found.verdicts.items()))
    result_console().print(
        f"{counted(found.programs, 'program')} of {counted(len(workloads), 'kernel')} in {path}, "
        f"{found.reused} of them measured before"
    )


def _workloads(kernels: list[str], suite: str) -> list[Workload]:
    """Those that are named, or all of `suite` at their default shapes."""
    from tirgym.kernels_suite.kernel import Workload
    from tirgym.kernels_suite.registry import SUITES, list_kernels

    if kernels:
        return [named_workload(name) for name in kernels]
    if suite not in SUITES:
        raise UnknownNameError("suite", suite, sorted(SUITES))
    return [Workload.of(kernel) for kernel in list_kernels(suite)]
