"""`winners`: the fastest verified trace of each workload, step by step, for the kernel's page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.record import Recipe, RecipeKind
from tirgym.benchmarks.leaderboard.verdicts import Verified
from tirgym.errors import IllegalTransformError, UsageError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.explain_trace import TraceExplanation, explain_trace, measured_by
from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace

__all__ = ["winners"]


def winners(
    board: Board, evaluate: Callable[[Program], Evaluation] | None = None
) -> Iterator[dict[str, Any]]:
    """Entries of "winners", see the format in `tirgym.benchmarks.leaderboard.report`.

    `evaluate` measures the program after each step; without it, steps have predicted times alone. A
    trace that does not apply with what is installed here has no entry.
    """
    for uri in board.plan.workloads:
        best = _best(board, uri)
        if best is None:
            continue
        cell, recipe, target = best
        try:
            explained = explain_trace(Trace(uri, target, recipe.steps))
        except (UsageError, IllegalTransformError):
            continue
        if explained.legal:
            if evaluate is not None:
                explained = measured_by(explained, evaluate)
            yield _entry(cell, explained)


def _best(board: Board, uri: str) -> tuple[Verified, Recipe, Target] | None:
    found: list[tuple[float, Verified, Recipe, Target]] = []
    for cell in board.verified:
        record = board.record(cell.agent, uri, cell.seed)
        answer = record.answer(cell.trials) if record is not None else None
        if record is None or answer is None or cell.speedup is None or cell.workload != uri:
            continue
        if answer.recipe.kind is RecipeKind.TRANSFORMS and answer.recipe.steps:
            found.append((cell.speedup, cell, answer.recipe, record.target))
    return max(found, key=lambda entry: entry[0])[1:] if found else None


def _entry(cell: Verified, explained: TraceExplanation) -> dict[str, Any]:
    told = explained.to_dict()
    programs = explained.programs
    start_us = told["start"].get("predicted_us")
    return {
        "workload": cell.workload,
        "agent": cell.agent,
        "seed": cell.seed,
        "trials": cell.trials,
        "speedup": cell.speedup,
        "start": {
            "text": programs[0].text(),
            "predicted_us": start_us,
            "measured_us": _number(told["start_measured"], "latency_us"),
        },
        "steps": [
            {
                "transform": step["transform"],
                "text": programs[number].text(),
                "predicted_us": step["predicted_us"]["after"],
                "changes": step["sentences"],
                "measured_us": _number(step["measured"], "latency_us"),
                "speedup": _number(step["measured"], "speedup"),
                "gain": step["gain"],
                "gain_ci": step["gain_ci"],
                "verdict": step["verdict"] or "",
            }
            for number, step in enumerate(told["steps"], 1)
        ],
    }


def _number(measured: dict[str, Any] | None, field: str) -> float | None:
    return None if measured is None else measured[field]
