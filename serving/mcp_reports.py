"""Verdicts, explanations, rows and traces of the harness as results of tools."""

from __future__ import annotations

import json
from dataclasses import replace

from tirgym.harness.account import account, has_account
from tirgym.harness.baselines_report import BaselineRow
from tirgym.harness.decision_log import Event
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.explain import describe, explain
from tirgym.harness.program import Program
from tirgym.harness.trace import Trace, TraceResult
from tirgym.serving.mcp_results import (
    BaselineEntry,
    Change,
    Evaluated,
    Exported,
    HistoryEntry,
    Quantity,
    State,
)
from tirgym.serving.mcp_wire import UNVERIFIED

__all__ = [
    "baseline_entry",
    "changed",
    "claimed",
    "evaluated",
    "exported",
    "figures",
    "history_entry",
]


def changed(before: Program, after: Program) -> tuple[list[Change], list[str]]:
    """What static analysis says that an action changed, as figures and in words; nothing where the
    backend has no accountant."""
    if not has_account(after):
        return [], []
    found = explain(before, after)
    changes = [
        Change(
            quantity=change.quantity.name,
            before=change.before,
            after=change.after,
            unit=change.quantity.unit.value,
            exact=change.quantity.exact and found.before.exact and found.after.exact,
        )
        for change in found.changes
    ]
    return changes, [sentence.text for sentence in found.sentences]


def figures(program: Program) -> tuple[list[Quantity], list[str]]:
    """What static analysis says about one program, as figures and in words."""
    if not has_account(program):
        return [], []
    found = account(program)
    quantities = [
        Quantity(
            name=each.name,
            value=found.values[each.name],
            unit=each.unit.value,
            exact=each.exact and found.exact,
            means=each.source,
        )
        for each in found.quantities
    ]
    return quantities, [sentence.text for sentence in describe(found)]


def evaluated(
    evaluation: Evaluation,
    program: Program,
    state: State,
    *,
    best_speedup: float,
    charged: bool,
    rolled_back: bool,
) -> Evaluated:
    """The verdict on `program`, after which the session is in `state`."""
    measured, gate = evaluation.measurement, evaluation.gate
    return Evaluated(
        status=evaluation.status.value,
        message=evaluation.message,
        level=evaluation.level.value,
        speedup=evaluation.speedup,
        speedup_ci=measured.speedup_ci if measured else None,
        latency_us=measured.latency_us if measured else None,
        baseline_us=measured.latency_us * measured.speedup if measured else None,
        best_speedup=best_speedup,
        charged=charged,
        reused=measured.reused if measured else False,
        code_key=evaluation.code_key,
        regimes=list(gate.regimes) if gate else [],
        worst_error=gate.worst_error if gate else None,
        rolled_back=rolled_back,
        evaluated=list(map(str, program.steps)),
        state=state,
    )


def claimed(evaluation: Evaluation, status: str) -> TraceResult:
    """The claim of a trace."""
    claim, measured = TraceResult(status), evaluation.measurement
    if measured is None:
        return claim
    return replace(
        claim,
        speedup=measured.speedup,
        speedup_ci=measured.speedup_ci,
        baseline_us=measured.baseline.lower_quartile_us * measured.anchor_ratio,
        best_us=measured.latency_us,
    )


def exported(trace: Trace) -> Exported:
    """A trace with its claim; unverified if it has none."""
    claim = trace.result or TraceResult(UNVERIFIED)
    return Exported(
        trace=json.loads(trace.to_json()),
        status=claim.status,
        speedup=claim.speedup,
        speedup_ci=claim.speedup_ci,
        file=None,
    )


def baseline_entry(row: BaselineRow) -> BaselineEntry:
    """One baseline."""
    return BaselineEntry(
        name=row.name,
        what=row.what,
        status=row.status,
        message=row.message,
        latency_us=row.stats.lower_quartile_us if row.stats else None,
        speedup=row.speedup,
        speedup_ci=row.speedup_ci,
        gflops=row.gflops,
        roofline_fraction=row.roofline_fraction,
    )


def history_entry(event: Event, why: str) -> HistoryEntry:
    """One event of the decision log, with the reason that the client gave."""
    return HistoryEntry(
        number=event.number,
        action=event.action,
        subject=event.subject,
        why=why,
        verdict=event.verdict,
        message=event.message,
        change={name: (old, new) for name, (old, new) in event.change.items()},
        latency_us=event.latency_us,
        speedup=event.speedup,
        code_key=event.code_key,
        ir_key=event.ir_key,
        elapsed_ms=event.elapsed_ms,
    )
