"""`tirgym profile`: what a program does, where it stands under the roofline, what the CPU counted."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    ShapeOption,
    SubjectArgument,
    ThreadsOption,
)
from tirgym.cli.output import note, print_json, print_table, result_console, working
from tirgym.cli.records import TIMING_COLUMNS, evaluation_record, program_record, timing_row
from tirgym.cli.subject import chosen_target, load_subject

if TYPE_CHECKING:
    from tirgym.harness.counters import Counters
    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.static_profile import Roofline, StaticProfile

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
    from tirgym.harness.static_profile import roofline, static_profile

    profile = static_profile(program)
    target = program.target
    if run and chosen_target(target.backend, None, target.num_threads) != target:
        note(f"warning: {target} is not this machine: the program was not run")
        run = False
    evaluation, place = None, None
    counted: Counters | str = "not run"
    if run:
        from tirgym.harness.calibration import peaks

        with working("checking and measuring") as say:
            evaluation = _evaluate(program)
            if evaluation.measurement is not None:
                say("measuring the peaks of this machine")
                time_us = evaluation.measurement.latency_us
                place = roofline(program, profile, time_us, peaks(target))
                say("counting")
                counted = _count(program)
    if json:
        counters = {} if isinstance(counted, str) else dict(counted.per_call)
        print_json(
            {
                **program_record(program),
                "profile": asdict(profile),
                "evaluation": evaluation_record(evaluation) if evaluation else None,
                "roofline": asdict(place) if place else None,
                "counters": counters,
                "counters_unavailable": counted if isinstance(counted, str) else None,
            }
        )
    else:
        _report(program, profile, evaluation, place, counted)
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
    counted: Counters | str,
) -> None:
    console = result_console()
    console.print(f"{program.workload.uri} for {program.target}", soft_wrap=True)
    print_table("", ("", ""), _static_rows(profile))
    if evaluation is not None and evaluation.measurement is not None:
        console.print()
        row = timing_row("time", evaluation.measurement.candidate)
        print_table("", TIMING_COLUMNS, [row])
    if place is not None:
        console.print(
            f"\nroofline: {place.fraction:.1%} of what this machine can do; bound by "
            f"{place.bound} ({place.level}): {place.achieved_gflops:.1f} of "
            f"{place.attainable_gflops:.1f} GFLOP/s, {place.floor_us:.2f} µs at the roof"
        )
    if isinstance(counted, str):
        if evaluation is not None:
            console.print(f"counters: none: {counted}", soft_wrap=True)
        return
    rows = [(name, f"{value:,.0f}") for name, value in counted.per_call.items()]
    if counted.instructions_per_cycle is not None:
        rows.append(("instructions per cycle", f"{counted.instructions_per_cycle:.2f}"))
    console.print()
    print_table("", ("counter", ">per call"), rows)


def _static_rows(profile: StaticProfile) -> list[tuple[str, str]]:
    """What is worth a line of the static profile."""
    repeated = profile.flops / profile.useful_flops if profile.useful_flops else 1.0
    rows = [
        ("arithmetic", f"{profile.useful_flops:,} operations, done {repeated:.2f} times"),
        ("compulsory traffic", _bytes(profile.compulsory_bytes)),
        ("intensity", f"{profile.arithmetic_intensity:.2f} operations a byte"),
        ("loads and stores", _bytes(profile.l1_bytes)),
        ("traffic from L2", _bytes(profile.l2_bytes)),
        ("traffic from L3", _bytes(profile.l3_bytes)),
        ("traffic from memory", _bytes(profile.dram_bytes)),
        ("intermediates", _bytes(profile.intermediate_bytes)),
        ("vectorized", f"{profile.vectorized_share:.0%}, {profile.vector_lanes} lanes at most"),
        ("parallel", f"{profile.parallel_iterations} iterations"),
        ("loops, blocks, branches", f"{profile.loops}, {profile.blocks}, {profile.branches}"),
        ("predicted", f"{profile.predicted_us:.2f} µs"),
    ]
    mix = profile.mix
    if mix is not None:
        rows += [
            ("instructions", f"{mix.total} in the code, {mix.fused} fused multiply-adds"),
            ("vector arithmetic", f"{mix.vector_fraction:.0%}, {mix.widest_bits} bits at most"),
            ("spills", f"{mix.spill_loads} loads, {mix.spill_stores} stores"),
        ]
    return rows


def _bytes(count: float) -> str:
    """`1.5 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
