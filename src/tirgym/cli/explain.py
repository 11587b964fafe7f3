"""`tirgym explain`: what each step of a trace changed, in figures and in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from tirgym.cli.records import speedup_text
from tirgym.cli.subject import chosen_target, is_trace, load_subject, reshaped
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.explain_trace import Gain, Measured, Step, TraceExplanation
    from tirgym.harness.target import Target
    from tirgym.harness.trace import Trace

__all__ = ["explain_command"]


def explain_command(
    subject: SubjectArgument,
    step: Annotated[
        int | None,
        typer.Option("--step", help="Only this step, 1 for the first.", show_default="all"),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Measure the program after each step: which gained, which lost?"
        ),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            help="Show what was measured at each step: a decision log (save_history), or the "
            "folder or file of `optimize --record`.",
            show_default=False,
        ),
    ] = None,
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Say what each step of a trace changed: memory traffic, vectors, registers, branches, cost.

    Found by static analysis; --measure runs the programs too. A kernel is described as it is. Of a
    transcript of a language model, its claims are shown beside what was measured.

    The exit code is 1 if a step is not legal, or if the final program is measured and fails.
    """
    from tirgym.cli.claims import explain_transcript, names_transcript

    if names_transcript(subject):
        options = {"--step": step, "--log": log, "--shape": shape, "--backend": backend}
        options |= {"--arch": arch, "--threads": threads, "--measure": measure or None}
        explain_transcript(subject, options, json)
        return
    explanation = _explained(subject, step, shape, backend, arch, threads)
    if log is not None:
        from tirgym.harness.step_log import recorded_steps

        explanation = explanation.with_measured(recorded_steps(log, explanation.programs))
    measured = measure and _is_this_machine(explanation.target)
    if measured:
        explanation = _measure(explanation)
    if json:
        print_json(_record(explanation, step))
    elif not explanation.steps:
        _describe(explanation)
    elif step is not None:
        _report_step(explanation, explanation.steps[step - 1])
    else:
        _report(explanation)
    last = explanation.steps[-1] if explanation.steps else None
    if last is not None and last.refusal:
        note(f"step {last.number} is not legal: {last.refusal}")
        raise typer.Exit(1)
    verdict = last.measured if last else explanation.begin
    if measured and verdict is not None and verdict.status != "passed":
        note(f"not passed: {verdict.status}: {verdict.message}")
        raise typer.Exit(1)


def _explained(
    subject: str,
    step: int | None,
    shape: list[str] | None,
    backend: str | None,
    arch: str | None,
    threads: int | None,
) -> TraceExplanation:
    """The explanation of what the user named; raises InvalidValueError for a step it lacks."""
    from tirgym.harness.explain_trace import explain_trace
    from tirgym.harness.trace import Trace

    if is_trace(subject):
        trace = reshaped(Trace.load(subject), shape)
        target = _target(trace, backend, arch, threads)
        steps = len(trace.transforms)
        accepted = f"1 to {steps}, the steps of this trace" if steps else "a trace with steps"
    else:
        program = load_subject(subject, shape, backend, arch, threads).program
        trace, target = Trace(program.workload.uri, program.target, ()), program.target
        accepted = "a trace: a kernel has no steps"
    if step is not None and not 1 <= step <= len(trace.transforms):
        raise InvalidValueError("--step", step, accepted)
    explanation = explain_trace(trace, target)
    if step is not None and step > len(explanation.steps):
        accepted = f"1 to {len(explanation.steps)}: that step is not legal, and what follows it"
        raise InvalidValueError("--step", step, f"{accepted} was not reached")
    claim = trace.result
    if claim is None or not explanation.legal:
        return explanation
    from tirgym.harness.explain_trace import Measured

    last = Measured(claim.status, "recorded", claim.best_us, claim.speedup, claim.speedup_ci)
    first = Measured("passed", "recorded", claim.baseline_us, 1.0, (1.0, 1.0))
    known = {0: first} if claim.baseline_us is not None else {}
    return explanation.with_measured({**known, len(trace.transforms): last})


def _target(trace: Trace, backend: str | None, arch: str | None, threads: int | None) -> Target:
    """The target to explain for, the recorded one by default; says so where it is another one."""
    target = chosen_target(backend, arch, threads, recorded=trace.target)
    if target != trace.target:
        note(f"warning: recorded for {trace.target}, explained for {target}: figures differ")
        return target
    host = chosen_target(target.backend, None, target.num_threads)
    if host != target:
        note(f"warning: explained for {target}, where it was recorded; this machine is {host}")
    return target


def _is_this_machine(target: Target) -> bool:
    host = chosen_target(target.backend, None, target.num_threads)
    if host != target:
        note(f"warning: {target} is not this machine ({host}): nothing was measured")
    return host == target


def _measure(explanation: TraceExplanation) -> TraceExplanation:
    from tirgym.harness.evaluation import Level
    from tirgym.harness.explain_trace import measured_by
    from tirgym.harness.local_evaluator import LocalEvaluator

    total = len(explanation.programs) - 1
    with working("measuring") as say, LocalEvaluator() as evaluator:
        return measured_by(
            explanation,
            lambda program: evaluator.evaluate(program, Level.FULL),
            lambda number: say(f"measuring after step {number} of {total}"),
        )


def _record(explanation: TraceExplanation, step: int | None) -> dict[str, Any]:
    from tirgym.harness.explain import describe

    trace, target = explanation.trace, explanation.target
    found = explanation.to_dict()
    if step is not None:
        found["steps"] = [found["steps"][step - 1]]
    return {
        "workload": trace.workload,
        "backend": target.backend,
        "target": target.arch,
        "num_threads": target.num_threads,
        "recorded_target": str(trace.target),
        "start_sentences": [sentence.text for sentence in describe(explanation.start)],
        **found,
    }


def _describe(explanation: TraceExplanation) -> None:
    """A program without steps."""
    from tirgym.harness.explain import describe

    console = result_console()
    console.print(f"{explanation.trace.workload} for {explanation.target}", soft_wrap=True)
    for sentence in describe(explanation.start):
        console.print(f"  {sentence.text}", soft_wrap=True)
    if explanation.begin is not None:
        console.print(f"  {_measured_text(explanation.begin)}", soft_wrap=True)


def _report(explanation: TraceExplanation) -> None:
    """A row for each step, then sentences, then who gained or lost time."""
    title = f"{explanation.trace.workload} for {explanation.target}"
    print_table(title, *_table(explanation))
    for step in explanation.steps:
        _print_sentences(step)
    _print_gains(explanation)


def _table(explanation: TraceExplanation) -> tuple[list[str], list[list[str]]]:
    """Columns and rows; a column is there if some step changed it."""
    from tirgym.harness.account import amount

    changes = [
        {change.quantity.name: change for change in step.explanation.changes}
        if step.explanation
        else {}
        for step in explanation.steps
    ]
    shown = [
        quantity
        for quantity in explanation.start.quantities
        if quantity.column and any(quantity.name in row for row in changes)
    ]
    first = [amount(q.unit, explanation.start.values[q.name]) for q in shown]
    rows = [["0", "(unscheduled)", "", *first, *_time_cells(explanation.begin, None)]]
    gains = {gain.step: gain for gain in explanation.gains}
    for step, row in zip(explanation.steps, changes, strict=True):
        cells = []
        for quantity in shown:
            change = row.get(quantity.name)
            values = (change.before, change.after) if change else ()
            cells.append(" → ".join(amount(quantity.unit, value) for value in values))
        legal = "no" if step.refusal else "yes"
        times = _time_cells(step.measured, gains.get(step.number))
        rows.append([str(step.number), step.transform, legal, *cells, *times])
    columns = [">step", "transform", "legal", *(f">{quantity.column}" for quantity in shown)]
    if explanation.begin is None and not any(step.measured for step in explanation.steps):
        return columns, [row[: len(columns)] for row in rows]
    return [*columns, ">measured", ">speedup", ">gain of the step"], rows


def _time_cells(measured: Measured | None, gain: Gain | None) -> list[str]:
    if measured is None:
        return ["", "", ""]
    time = measured.status if measured.latency_us is None else f"{measured.latency_us:,.2f} µs"
    speedup = "" if measured.speedup is None else f"{measured.speedup:.2f}x"
    return [time, speedup, "" if gain is None else _gain_text(gain)]


def _gain_text(gain: Gain) -> str:
    return f"{speedup_text(gain.ratio, gain.interval)} {gain.verdict}".strip()


def _print_sentences(step: Step) -> None:
    console = result_console()
    console.print(f"\nstep {step.number}: {step.transform}", soft_wrap=True)
    if step.explanation is None:
        console.print(f"  not legal: {step.refusal}", soft_wrap=True)
        return
    for sentence in step.explanation.sentences:
        console.print(f"  {sentence.text}", soft_wrap=True)
    if not step.explanation.sentences:
        console.print("  nothing that static analysis counts has changed")
    if step.measured is not None:
        console.print(f"  {_measured_text(step.measured)}", soft_wrap=True)


def _measured_text(measured: Measured) -> str:
    if measured.speedup is None or measured.latency_us is None:
        why = f": {measured.message}" if measured.message else ""
        return f"{measured.source}: {measured.status}{why}"
    speedup = speedup_text(measured.speedup, measured.speedup_ci)
    return f"{measured.source}: {measured.latency_us:,.2f} µs, speedup {speedup} over unscheduled"


def _report_step(explanation: TraceExplanation, step: Step) -> None:
    """Every quantity before and after one step, then its sentences."""
    from tirgym.harness.account import amount

    title = f"{explanation.trace.workload} for {explanation.target}"
    rows = []
    if step.explanation is not None:
        before, after = step.explanation.before, step.explanation.after
        for quantity in after.quantities:
            values = [amount(quantity.unit, each.values[quantity.name]) for each in (before, after)]
            changed = "" if values[0] == values[1] else "changed"
            how = "counted" if quantity.exact else "estimated"
            rows.append((quantity.noun or quantity.column, *values, changed, how, quantity.source))
    columns = ("", ">before", ">after", "", "", "how")
    if rows:
        print_table(title, columns, rows)
    _print_sentences(step)
    alone = replace(explanation, steps=explanation.steps[: step.number])
    gain = {gain.step: gain for gain in alone.gains}.get(step.number)
    if gain is not None:
        result_console().print(f"  gain of the step: {_gain_text(gain)}")


def _print_gains(explanation: TraceExplanation) -> None:
    lines = list(_gain_lines(explanation))
    if lines:
        result_console().print()
    for line in lines:
        result_console().print(line, soft_wrap=True)


def _gain_lines(explanation: TraceExplanation) -> Iterator[str]:
    """The steps that gained and lost most time, where the intervals show it."""
    gains = [gain for gain in explanation.gains if gain.interval is not None]
    best = max(gains, key=lambda gain: gain.ratio, default=None)
    worst = min(gains, key=lambda gain: gain.ratio, default=None)
    if best is not None and best.verdict == "faster":
        text = speedup_text(best.ratio, best.interval)
        yield f"gained most: step {best.step}, {_name(explanation, best)}: {text} as fast as before"
    if worst is not None and worst.verdict == "slower" and worst.interval is not None:
        low, high = worst.interval
        text = speedup_text(1 / worst.ratio, (1 / high, 1 / low))
        yield f"lost most: step {worst.step}, {_name(explanation, worst)}: takes {text} as long"
    if gains and (best is None or best.verdict != "faster"):
        yield "no step is shown to gain time"


def _name(explanation: TraceExplanation, gain: Gain) -> str:
    return explanation.steps[gain.step - 1].transform
