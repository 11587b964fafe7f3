"""`tirgym graph`: what recorded runs visited, as one graph, a table, and a file to look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import JsonFlag
from tirgym.cli.output import (
    counted,
    note,
    print_json,
    print_table,
    progress_bar,
    result_console,
    working,
)
from tirgym.cli.subject import named_workload, require_writable
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.decision_graph import Continuation, DecisionGraph, LostTime

__all__ = ["graph_command"]

_SHOWN = 3
"""Untried continuations of a state that the table names."""


def graph_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder of run records (optimize --record DIR) and traces (--out DIR/t.json).",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the graph here.", show_default=False),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="html, json, graphml or dot.", show_default="by the name of the file"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Which step of this trace lost the time?", show_default=False),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure every state on the way of --trace.")
    ] = False,
    ahead: Annotated[
        int, typer.Option("--frontier", help="States to go on from, for each workload.")
    ] = 5,
    json: JsonFlag = False,
) -> None:
    """Merge recorded runs into one graph of IR states: best path, frontier, and where time was lost."""
    _require_options(out, form, trace, measure, ahead)
    from tirgym.harness.decision_graph import build_graph, read_runs, save_graph

    runs = read_runs(folder)
    with progress_bar("replaying") as advance:
        graph = build_graph(
            runs, load=named_workload, progress=lambda done, total: advance(done, total, "")
        )
    for warning in graph.warnings:
        note(f"warning: {warning}")
    continuations = [_frontier(graph, root, ahead) for root in range(len(graph.roots))]
    lost = None if trace is None else _lost_time(graph, trace, measure)
    if out is not None:
        save_graph(graph, out, form)
    if json:
        print_json(_record(graph, continuations, lost, out))
    else:
        _report(graph, continuations, lost, out)


def _require_options(
    out: Path | None, form: str | None, trace: Path | None, measure: bool, ahead: int
) -> None:
    from tirgym.harness.decision_graph.export import format_of

    if out is not None:
        format_of(out, form)
        require_writable(out, "--out")
    elif form is not None:
        raise InvalidValueError("--format", form, "--out FILE beside it")
    if measure and trace is None:
        raise InvalidValueError("--measure", measure, "--trace TRACE beside it")
    if ahead < 0:
        raise InvalidValueError("--frontier", ahead, "a whole number of at least 0")


def _frontier(graph: DecisionGraph, root: int, limit: int) -> list[Continuation]:
    from tirgym.harness.decision_graph import LegalTransforms, frontier

    if limit == 0:
        return []
    with working("looking for what nobody tried"):
        return frontier(graph, root, limit, LegalTransforms(graph, load=named_workload))


def _lost_time(graph: DecisionGraph, path: Path, measure: bool) -> LostTime:
    from tirgym.harness.decision_graph import lost_time
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.trace import Trace

    trace = Trace.load(path)
    named_workload(trace.workload)
    if not measure:
        return lost_time(trace, graph)
    with working("measuring every state"), LocalEvaluator() as evaluator:
        return lost_time(trace, graph, evaluator=evaluator)


# -- what is printed --------------------------------------------------------------------------


def _record(
    graph: DecisionGraph,
    continuations: Sequence[Sequence[Continuation]],
    lost: LostTime | None,
    out: Path | None,
) -> dict[str, Any]:
    """The summary; the graph itself goes to the file."""
    return {
        "states": len(graph.states),
        "ir_states": len({(state.root, state.ir_key) for state in graph.states.values()}),
        "edges": len(graph.edges),
        "statuses": _statuses(graph),
        "roots": [_root_record(graph, root, found) for root, found in enumerate(continuations)],
        "lost_time": asdict(lost) if lost else None,
        "warnings": list(graph.warnings),
        "file": None if out is None else str(out),
    }


def _statuses(graph: DecisionGraph) -> dict[str, int]:
    statuses = [state.status or "not_judged" for state in graph.states.values()]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def _root_record(
    graph: DecisionGraph, number: int, found: Sequence[Continuation]
) -> dict[str, Any]:
    from tirgym.harness.decision_graph import best_path, best_state, regret

    root, best = graph.roots[number], best_state(graph, number)
    return {
        "workload": root.workload,
        "backend": root.target.backend,
        "target": root.target.arch,
        "num_threads": root.target.num_threads,
        "states": len(graph.of(number)),
        "visits": graph.state(root.state).visits,
        "best": best.id if best else None,
        "best_speedup": best.speedup if best else None,
        "best_us": best.latency_us if best else None,
        "best_path": [
            {
                "label": edge.label,
                "transforms": edge.transforms,
                "visits": edge.visits,
                "cost_gain": edge.cost_gain,
                "weight": edge.weight,
                "gain": edge.gain,
                "gain_from": edge.gain_from,
                "regret": regret(graph, edge),
            }
            for edge in best_path(graph, number)
        ],
        "frontier": [
            {
                "state": ahead.state.id,
                "kind": ahead.kind,
                "promise": ahead.promise,
                "untried": ahead.untried,
                "transforms": graph.transforms(ahead.state.id),
            }
            for ahead in found
        ],
    }


def _report(
    graph: DecisionGraph,
    continuations: Sequence[Sequence[Continuation]],
    lost: LostTime | None,
    out: Path | None,
) -> None:
    console = result_console()
    for number, root in enumerate(graph.roots):
        states = graph.of(number)
        visits = graph.state(root.state).visits
        console.print(
            f"{root.workload} on {root.target}: {counted(len(states), 'state')}, "
            f"{counted(visits, 'visit')}"
        )
        _report_best(graph, number)
        _report_frontier(graph, continuations[number])
        console.print()
    verdicts = ", ".join(f"{count} {name}" for name, count in _statuses(graph).items())
    console.print(f"states: {verdicts}")
    if lost is not None:
        _report_lost(lost)
    console.print(f"graph   {out or 'not saved (-o graph.html saves it)'}")


def _report_best(graph: DecisionGraph, root: int) -> None:
    from tirgym.harness.decision_graph import best_path, best_state, regret

    best = best_state(graph, root)
    if best is None or best.speedup is None:
        result_console().print("nothing was measured")
        return
    rows = [
        (
            at,
            edge.label,
            edge.visits,
            _factor(edge.gain),
            edge.gain_from,
            _factor(edge.cost_gain),
            "" if edge.weight is None else f"{edge.weight:.2f}",
            _regret_text(regret(graph, edge)),
        )
        for at, edge in enumerate(best_path(graph, root), 1)
    ]
    columns = (
        ">step", "transform or answer", ">visits", ">gain", "from", ">static cost says",
        ">confidence", ">regret",
    )  # fmt: skip
    title = f"best path: {best.speedup:.2f}x" + ("" if rows else ", the unscheduled program")
    if rows:
        print_table(title, columns, rows)
    else:
        result_console().print(title)


def _regret_text(regret: float | None) -> str:
    return "" if regret is None else "none" if regret <= 0 else _factor(regret)


def _factor(gain: float | None) -> str:
    """A gain as a ratio of times: `1.25x`."""
    return "" if gain is None else f"{math.exp(gain):.2f}x"


def _report_frontier(graph: DecisionGraph, found: Sequence[Continuation]) -> None:
    if not found:
        return
    rows = []
    for ahead in found:
        more = len(ahead.untried) - _SHOWN
        untried = ", ".join(ahead.untried[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        steps = counted(graph.depths[ahead.state.id], "step")
        rows.append((f"{math.exp(ahead.promise):.2f}x", ahead.state.id, steps, untried or "itself"))
    print_table("frontier, most promising first", (">promise", "state", ">at", "untried"), rows)


def _report_lost(lost: LostTime) -> None:
    rows = [
        (
            step.number,
            step.transform,
            _factor(step.gain),
            step.gain_from,
            "" if step.speedup is None else f"{step.speedup:.2f}x",
            _regret_text(step.regret),
        )
        for step in lost.steps
    ]
    columns = (">step", "transform", ">gain", "from", ">speedup", ">regret")
    print_table("the trace, step by step", columns, rows)
    console = result_console()
    slowest, departure = lost.slowest, lost.departure
    console.print(
        "no step made it slower"
        if slowest is None
        else f"step {slowest.number} lost the most time: {slowest.transform} "
        f"({_factor(slowest.gain)} {slowest.gain_from})"
    )
    if departure is not None:
        console.print(
            f"step {departure.number} left the best way: another choice led to a program "
            f"{_factor(departure.regret)} as fast"
        )
