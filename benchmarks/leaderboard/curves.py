"""What runs saw while they searched: the best after n trials, and trials to a share of the best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.record import Record

__all__ = ["LEVELS", "best_after", "curves_of", "trials_to", "trials_until"]

LEVELS = (0.5, 0.8, 0.9, 0.95)


def best_after(record: Record, trials: int) -> float:
    """Best speedup of the first `trials` trials, at least 1."""
    return max((p.best_speedup for p in record.curve if p.trial <= trials), default=1.0)


def trials_until(record: Record, speedup: float) -> int | None:
    """Trials spent when the run first saw `speedup`; None if it never did."""
    return next((p.trial for p in record.curve if p.best_speedup >= speedup), None)


def _counts(board: Board) -> list[int]:
    """1, 2, 4, … and the trial counts of the board."""
    longest = board.plan.trials[-1]
    powers = {2**n for n in range(longest.bit_length()) if 2**n <= longest}
    return sorted(powers | set(board.plan.trials))


def _searches(board: Board, agent: str) -> list[Record]:
    return [record for record in board.records if record.agent == agent and record.curve]


def curves_of(board: Board) -> dict[str, Any]:
    """See the format in `tirgym.benchmarks.leaderboard.report`."""
    counts = _counts(board)
    agents: dict[str, Any] = {}
    workloads: dict[str, dict[str, Any]] = {uri: {} for uri in board.plan.workloads}
    for name in board.players():
        records = _searches(board, name)
        agents[name] = _means(records, counts)
        for uri, found in workloads.items():
            found[name] = _means([r for r in records if r.workload == uri], counts)
    return {"n": counts, "agents": agents, "workloads": workloads}


def _means(records: Sequence[Record], counts: Sequence[int]) -> list[float] | None:
    if not records:
        return None
    return [statistics.geometric_mean([best_after(r, n) for r in records]) for n in counts]


def trials_to(board: Board) -> dict[str, Any]:
    """See the format in `tirgym.benchmarks.leaderboard.report`."""
    best: dict[str, float] = {}
    for verdict in board.verified:
        if verdict.speedup is not None and _searches(board, verdict.agent):
            best[verdict.workload] = max(best.get(verdict.workload, 1.0), verdict.speedup)
    counts = _counts(board)
    agents: dict[str, Any] = {}
    for name in board.players():
        runs = [record for record in _searches(board, name) if record.workload in best]
        agents[name] = {
            str(level): _reached([trials_until(r, level * best[r.workload]) for r in runs], counts)
            for level in LEVELS
        }
    return {"levels": list(LEVELS), "n": counts, "agents": agents}


def _reached(found: Sequence[int | None], counts: Sequence[int]) -> dict[str, Any] | None:
    if not found:
        return None
    middle = statistics.median(math.inf if n is None else n for n in found)
    share = [sum(n is not None and n <= count for n in found) / len(found) for count in counts]
    return {"median": middle if math.isfinite(middle) else None, "share": share}
