"""`tirgym profile`: what a program does, where it stands under the roofline, what the CPU counted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    ShapeOption,
    SubjectArgument,
    ThreadsOption,
)
from tirgym.cli.output import (
    counted,
    note,
    print_json,
    print_table,
    result_console,
    working,
)
from tirgym.cli.records import TIMING_COLUMNS, evaluation_record, program_record, timing_row
from tirgym.cli.subject import chosen_target, load_subject

if TYPE_CHECKING:
    from tirgym.harness.counters import Counters
    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.static_profile import Roofline, StaticProfile
    from tirgym.harness.triton.program import TritonProgram

__all__ = ["profile_command"]


def profile_command(
    subject: SubjectArgument,
    run: Annotated[
        bool, typer.Option(help="Check and time the program, for roofline and counters.")
    ] = True,
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Show the static profile, the roofline position and hardware counters of a program."""
    program = load_subject(subject, shape, backend, arch, threads).program
    if program.dialect == "triton":
        from tirgym.cli.profile_triton import report_triton

        report_triton(cast("TritonProgram", program), json)
        return
    from tirgym.harness.static_profile import roofline, static_profile

    profile = static_profile(program)
    target = program.target
    if run and chosen_target(target.backend, None, target.num_threads) != target:
        note(f"warning: {target} is not this machine: the program was not run")
        run = False
    evaluation, place = None, None
    found: Counters | str = "not run"
    if run:
        from tirgym.harness.calibration import peaks
        from tirgym.harness.hardware import runs_on_cpu

        with working("checking and measuring") as say:
            evaluation = _evaluate(program)
            if evaluation.measurement is not None and runs_on_cpu(target):
                say("measuring the peaks of this machine")
                time_us = evaluation.measurement.latency_us
                place = roofline(program, profile, time_us, peaks(target))
                say("counting")
                found = _count(program)
    if json:
        counters = {} if isinstance(found, str) else dict(found.per_call)
        print_json(
            {
                **program_record(program),
                "profile": asdict(profile),
                "evaluation": evaluation_record(evaluation) if evaluation else None,
                "roofline": asdict(place) if place else None,
                "counters": counters,
                "counters_unavailable": found if isinstance(found, str) else None,
            }
        )
    else:
        _report(program, profile, evaluation, place, found)
    if evaluation is not None and not evaluation.passed:
        note(f"no time: {evaluation.status.value}: {evaluation.message}")
        raise typer.Exit(1)


def _evaluate(program: Program) -> Evaluation:
    from tirgym.harness.evaluation import Level
    from tirgym.harness.local_evaluator import LocalEvaluator

    with LocalEvaluator() as evaluator:
        return evaluator.evaluate(program, Level.FULL)


def _count(program: Program) -> Counters | str:
    from tirgym.harness.counted_run import count_program

    return count_program(program)


def _report(
    program: Program,
    profile: StaticProfile,
    evaluation: Evaluation | None,
    place: Roofline | None,
    found: Counters | str,
) -> None:
    console = result_console()
    console.print(f"{program.workload.uri} for {program.target}", soft_wrap=True)
    print_table("", ("", ""), _static_rows(program, profile))
    if evaluation is not None and evaluation.measurement is not None:
        console.print()
        row = timing_row("time of one call", evaluation.measurement.candidate)
        print_table("", TIMING_COLUMNS, [row])
        if place is not None:
            time_us = evaluation.measurement.latency_us
            console.print(f"\n{_roofline_text(profile, place, time_us)}", soft_wrap=True)
    if isinstance(found, str):
        if evaluation is not None:
            console.print(f"hardware counters: none: {found}", soft_wrap=True)
        return
    rows = [(name, f"{value:,.0f}") for name, value in found.per_call.items()]
    if found.instructions_per_cycle is not None:
        rows.append(("instructions per cycle", f"{found.instructions_per_cycle:.2f}"))
    console.print()
    print_table("", ("hardware counter", ">per call"), rows)


def _roofline_text(profile: StaticProfile, place: Roofline, time_us: float) -> str:
    """`roofline: 12.0% of the limit, 20.1 of 167.5 GFLOP/s; the limit is …`."""
    if profile.useful_flops:
        reached = f"{place.achieved_gflops:.1f} of {place.attainable_gflops:.1f} GFLOP/s"
    else:
        moved = profile.compulsory_bytes / 1e3
        reached = f"{moved / time_us:.1f} of {moved / place.floor_us:.1f} GB/s"
    limit = {
        "compute": "the peak of the arithmetic units",
        "memory": f"the bandwidth of {place.level}, the nearest memory that holds the data",
    }[place.bound]
    return (
        f"roofline: {place.fraction:.1%} of the limit, {reached}; the limit is {limit}, where a "
        f"call would take {place.floor_us:.2f} µs"
    )


def _static_rows(program: Program, profile: StaticProfile) -> list[tuple[str, str]]:
    """What is worth a line of the static profile: (what, figure with its unit)."""
    counts, threads = profile.counts, program.target.num_threads
    share, lanes = profile.vectorized_share, profile.vector_lanes
    spread = f"{profile.parallel_iterations:,} iterations on {counted(threads, 'thread')}"
    rows = [
        ("arithmetic needed", f"{profile.useful_flops:,} operations"),
        ("arithmetic done", f"{profile.flops:,} operations{_times(profile)}"),
        ("data in and out", f"{_bytes(profile.compulsory_bytes)}, inputs and outputs once each"),
        ("intensity", f"{profile.arithmetic_intensity:.2f} operations a byte in and out"),
        ("loads and stores", f"{_bytes(profile.l1_bytes)}, before any reuse in registers"),
        ("reads from L2", f"{_bytes(profile.l2_bytes)} (estimated)"),
        ("reads from L3", f"{_bytes(profile.l3_bytes)} (estimated)"),
        ("reads from memory", f"{_bytes(profile.dram_bytes)} (estimated)"),
        ("temporaries", _bytes(profile.lowered.temporary_bytes)),
        ("vectorized loops", f"{share:.0%} of the work, {lanes} lanes" if lanes else "none"),
        ("parallel loops", spread if profile.parallel_iterations > 1 else "none"),
        ("conditions tested", f"{counts.conditions:,}"),
        ("structure", f"{counted(profile.loops, 'loop')}, {counted(profile.blocks, 'block')}"),
        ("predicted time", f"{profile.predicted_us:,.2f} µs (static cost model)"),
    ]
    mix = profile.mix
    if mix is not None:
        fused = f"{mix.total:,} instructions, {mix.fused:,} of them fused multiply-adds"
        packed = f"{mix.vector_fraction:.0%} of floating-point instructions"
        rows += [
            ("machine code", fused),
            ("vector arithmetic", f"{packed}, {mix.widest_bits} bits at most"),
            ("register spills", f"{mix.spill_loads:,} loads, {mix.spill_stores:,} stores"),
        ]
    return rows


def _times(profile: StaticProfile) -> str:
    """How much more is done than is needed."""
    if not profile.useful_flops or profile.flops == profile.useful_flops:
        return ""
    return f", {profile.flops / profile.useful_flops:.2f} times what is needed"


def _bytes(count: float) -> str:
    from tirgym.harness.account import Unit, amount

    return amount(Unit.BYTES, count)
