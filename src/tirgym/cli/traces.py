"""`tirgym replay`, `verify` and `compare`: what a saved trace does, and whether its claim holds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    ShapeOption,
    ThreadsOption,
    TraceArgument,
)
from tirgym.cli.output import note, print_json, print_table, result_console, working
from tirgym.cli.records import evaluation_record, program_record, sessions_text, speedup_text
from tirgym.cli.subject import evaluate_fully, reshaped, target_to_run
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.evaluation import Comparison, Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.static_checks import Finding
    from tirgym.harness.target import Target
    from tirgym.harness.trace import Trace, TraceResult

__all__ = ["compare_command", "replay_command", "verify_command"]


def replay_command(
    trace: TraceArgument,
    measure: Annotated[
        bool, typer.Option(help="Measure the result, or take its time from the store.")
    ] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure in full, whatever the store has.")
    ] = False,
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Apply a trace step by step, check that it makes the recorded program, and time it.

    With --shape the same transforms are applied to the kernel at another shape.
    """
    recorded, target, programs = _replayed(trace, backend, arch, threads, shape)
    evaluation = _evaluate(programs[-1], fresh) if measure else None
    steps = [
        {"transform": str(program.steps[-1]), "ir_key": program.ir_key} for program in programs[1:]
    ]
    if json:
        verdict = evaluation_record(evaluation) if evaluation else None
        print_json({**program_record(programs[-1]), "steps": steps, "evaluation": verdict})
    else:
        rows = [(number, *step.values()) for number, step in enumerate(steps, 1)]
        title = f"{recorded.workload} for {target}"
        print_table(title, (">step", "transform", "IR key"), rows)
        if evaluation is not None:
            print_table("", *_claim_and_number(recorded.result, evaluation))
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
    findings = _findings(program)
    evaluation = evaluate_fully(program)
    holds = _claim_holds(recorded.result, evaluation)
    if json:
        print_json(
            {
                **program_record(program),
                "findings": [str(finding) for finding in findings],
                "same_target": target == recorded.target,
                "same_code": evaluation.code_key == recorded.code_key,
                "claim": _claim_record(recorded.result),
                "claim_holds": holds,
                "verified": evaluation_record(evaluation),
                "passed": evaluation.passed,
            }
        )
    else:
        console = result_console()
        console.print(f"static findings: {'none' if not findings else ''}")
        for finding in findings:
            console.print(f"  {finding}")
        title = f"{recorded.workload} for {target}"
        print_table(title, *_claim_and_number(recorded.result, evaluation))
        if evaluation.sessions:
            console.print(sessions_text(evaluation.sessions, evaluation.passed))
        if evaluation.gate is not None:
            regimes = ", ".join(evaluation.gate.regimes)
            console.print(f"gate: {evaluation.status.value} on {regimes}")
        if holds is False:
            console.print("the claim does not hold: it is more than 1.25 times what was measured")
    _exit_unless_passed(evaluation)


def compare_command(
    first: Annotated[Path, typer.Argument(metavar="A", help="A saved trace.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another trace of the same kernel.")],
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Time two traces against each other, interleaved: is B faster than A, slower, or neither?"""
    one, two = (_replayed(path, backend, arch, threads)[2][-1] for path in (first, second))
    from tirgym.harness.evaluator import UNMEASURED

    if one.target.backend in UNMEASURED:
        accepted = "traces of a backend that measures; this one only checks and predicts"
        raise InvalidValueError("backend to compare on", one.target.backend, accepted)
    from tirgym.harness.local_evaluator import LocalEvaluator

    with working("comparing"), LocalEvaluator() as evaluator:
        found = evaluator.compare(one, two)
    if json:
        print_json(
            {
                "workload": one.workload.uri,
                "backend": one.target.backend,
                "target": one.target.arch,
                "num_threads": one.target.num_threads,
                "a": {"file": str(first), **evaluation_record(found.first)},
                "b": {"file": str(second), **evaluation_record(found.second)},
                "ratio": found.ratio,
                "interval": found.interval,
                "same_code": found.same_code,
                "noisy": found.noisy,
                "verdict": found.verdict,
            }
        )
    else:
        rows = []
        for name, path, judged in (("A", first, found.first), ("B", second, found.second)):
            record = evaluation_record(judged)
            speedup = speedup_text(record["speedup"], record["speedup_ci"])
            rows.append((name, path, judged.status.value, speedup))
        columns = ("", "trace", "status", ">over unscheduled")
        console = result_console()
        print_table(f"{one.workload.uri} on {one.target}", columns, rows)
        console.print(_verdict_line(found))
    if found.verdict == "invalid":
        note("not compared: a trace did not pass")
        raise typer.Exit(1)


def _verdict_line(found: Comparison) -> str:
    """`B is faster than A: A takes 1.20x (1.18 to 1.23) as long`."""
    if found.same_code:
        return "no difference: both are the same machine code"
    if found.ratio is None or found.interval is None:
        return "no verdict"
    ratio, (low, high) = found.ratio, found.interval
    who, whom = ("A", "B") if ratio >= 1.0 else ("B", "A")
    if ratio < 1.0:
        ratio, low, high = 1.0 / ratio, 1.0 / high, 1.0 / low
    verdict = found.verdict
    says = verdict if verdict.startswith("no ") else f"B is {verdict} than A"
    noisy = " (noisy)" if found.noisy else ""
    return f"{says}: {who} takes {speedup_text(ratio, (low, high))} as long as {whom}{noisy}"


def _replayed(
    path: Path,
    backend: str | None,
    arch: str | None,
    threads: int | None,
    shape: list[str] | None = None,
) -> tuple[Trace, Target, list[Program]]:
    """The trace at `path`, the target to run it for, and the programs of all its steps."""
    from tirgym.harness.replay import replay_steps, require_key
    from tirgym.harness.trace import Trace

    trace = reshaped(Trace.load(path), shape)
    target = target_to_run(trace, backend, arch, threads)
    programs = list(replay_steps(trace, target))
    require_key(trace, programs[-1])
    return trace, target, programs


def _findings(program: Program) -> list[Finding]:
    """What static checks say; they are of TensorIR, and other programs have none."""
    if program.dialect != "tensorir":
        return []
    from tirgym.harness.static_checks import static_checks

    return list(static_checks(program))


def _evaluate(program: Program, fresh: bool) -> Evaluation:
    if fresh:
        return evaluate_fully(program)
    from tirgym.harness.evaluator import make_evaluator

    with working("measuring"), closing(make_evaluator(program.target.backend)) as evaluator:
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
    """Whether the recorded speedup stands up to the measured one; None without both."""
    from tirgym.harness.speedup_claim import claim_holds

    return claim_holds(claim.speedup if claim else None, evaluation.speedup)


def _exit_unless_passed(evaluation: Evaluation | None) -> None:
    if evaluation is not None and not evaluation.passed:
        note(f"not passed: {evaluation.status.value}: {evaluation.message}")
        raise typer.Exit(1)
