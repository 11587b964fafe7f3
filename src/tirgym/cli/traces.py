"""`tirgym replay`, `verify` and `compare`: what a saved trace does, and whether its claim holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import ArchOption, BackendOption, JsonFlag, ThreadsOption, TraceArgument
from tirgym.cli.output import note, print_json, result_console, table
from tirgym.cli.records import evaluation_record, program_record, speedup_text
from tirgym.cli.subject import evaluate_fully, target_to_run

if TYPE_CHECKING:
    from pathlib import Path

    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.target import Target
    from tirgym.harness.trace import Trace, TraceResult

__all__ = ["replay_command", "verify_command"]


def replay_command(
    trace: TraceArgument,
    measure: Annotated[
        bool, typer.Option(help="Measure the result, or take its time from the store.")
    ] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure in full, whatever the store has.")
    ] = False,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Apply a trace step by step, check that it makes the recorded program, and time it."""
    recorded, target, programs = _replayed(trace, backend, arch, threads)
    evaluation = _evaluate(programs[-1], fresh) if measure else None
    steps = [
        {"transform": str(program.steps[-1]), "ir_key": program.ir_key} for program in programs[1:]
    ]
    if json:
        verdict = evaluation_record(evaluation) if evaluation else None
        print_json({**program_record(programs[-1]), "steps": steps, "evaluation": verdict})
    else:
        console = result_console()
        rows = [(number, *step.values()) for number, step in enumerate(steps, 1)]
        title = f"{recorded.workload} for {target}"
        console.print(table(title, (">step", "transform", "IR key"), rows))
        if evaluation is not None:
            console.print(table("", *_claim_and_number(recorded.result, evaluation)))
    _exit_unless_passed(evaluation)


def verify_command(
    trace: TraceArgument,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Check a trace's claim: static findings, full gate with fresh secret inputs, new measurement.

    The exit code is 1 if the program does not pass.
    """
    recorded, target, programs = _replayed(trace, backend, arch, threads)
    program = programs[-1]
    from tirgym.harness.static_checks import check_program

    findings = check_program(program)
    evaluation = evaluate_fully(program)
    if json:
        print_json(
            {
                **program_record(program),
                "findings": [str(finding) for finding in findings],
                "same_target": target == recorded.target,
                "same_code": evaluation.code_key == recorded.code_key,
                "claim": _claim_record(recorded.result),
                "claim_holds": _claim_holds(recorded.result, evaluation),
                "verified": evaluation_record(evaluation),
                "passed": evaluation.passed,
            }
        )
    else:
        console = result_console()
        console.print(f"static findings: {'none' if not findings else ''}")
        for finding in findings:
            console.print(f"  {finding}", markup=False)
        title = f"{recorded.workload} for {target}"
        console.print(table(title, *_claim_and_number(recorded.result, evaluation)))
        if evaluation.gate is not None:
            regimes = ", ".join(evaluation.gate.regimes)
            console.print(f"gate: {evaluation.status.value} on {regimes}")
        if _claim_holds(recorded.result, evaluation) is False:
            console.print("the verified interval lies below the recorded claim")
    _exit_unless_passed(evaluation)


def _replayed(
    path: Path, backend: str | None, arch: str | None, threads: int | None
) -> tuple[Trace, Target, list[Program]]:
    """The trace at `path`, the target to run it for, and the programs of all its steps."""
    from tirgym.harness.replay import replay_steps, require_key
    from tirgym.harness.trace import Trace

    trace = Trace.load(path)
    target = target_to_run(trace, backend, arch, threads)
    programs = list(replay_steps(trace, target))
    require_key(trace, programs[-1])
    return trace, target, programs


def _evaluate(program: Program, fresh: bool) -> Evaluation:
    if fresh:
        return evaluate_fully(program)
    from tirgym.harness.local_evaluator import LocalEvaluator

    with LocalEvaluator() as evaluator:
        return evaluator.evaluate(program)


def _claim_and_number(
    claim: TraceResult | None, evaluation: Evaluation
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows: the recorded claim beside what was measured now."""
    rows = []
    if claim is not None:
        rows.append(("recorded", claim.status, *_numbers(_claim_record(claim))))
    record = evaluation_record(evaluation)
    source = "from the store" if record["reused"] else "now"
    rows.append((source, evaluation.status.value, *_numbers(record)))
    return ("", "status", ">unscheduled µs", ">scheduled µs", ">speedup"), rows


def _numbers(record: dict[str, Any]) -> tuple[str, ...]:
    times = (record["baseline_us"], record["best_us"])
    cells = ["" if time is None else f"{time:.2f}" for time in times]
    return (*cells, speedup_text(record["speedup"], record["speedup_ci"]))


def _claim_record(claim: TraceResult | None) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(claim) if claim is not None else {}


def _claim_holds(claim: TraceResult | None, evaluation: Evaluation) -> bool | None:
    """Whether the verified interval reaches the claimed one; None without a claim or a number."""
    measured = evaluation.measurement
    if claim is None or claim.speedup is None or measured is None:
        return None
    lowest = claim.speedup_ci[0] if claim.speedup_ci else claim.speedup
    return measured.speedup_ci[1] >= lowest


def _exit_unless_passed(evaluation: Evaluation | None) -> None:
    if evaluation is not None and not evaluation.passed:
        note(f"not passed: {evaluation.status.value}: {evaluation.message}")
        raise typer.Exit(1)
