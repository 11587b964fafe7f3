"""`ranking`: the rows of one table, best first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.entrants import DEFAULT, PEER, VENDORS
from tirgym.benchmarks.leaderboard.record import Kind, Record
from tirgym.benchmarks.leaderboard.statistics import (
    Scores,
    estimate,
    fast_p,
    geomean,
    iqm,
    median,
    ranked,
    ratio_interval,
    unclipped,
)
from tirgym.benchmarks.leaderboard.verdicts import Standing, Verified

__all__ = ["FAST_P", "OTHERS", "ranking"]

FAST_P = (0.0, 1.0, 1.5, 2.0, 5.0, 10.0)
OTHERS = (DEFAULT, PEER, *VENDORS)
"""Rows that every other is held against, besides the unscheduled program."""


def ranking(board: Board, trials: int, headline: Mapping[str, bool]) -> list[dict[str, Any]]:
    """Rows by geometric mean; see the format in `tirgym.benchmarks.leaderboard.report`."""
    rows = [_row(board, name, trials) for name in board.players()]
    rows.sort(key=lambda row: -row["geomean"]["value"])
    places = {True: 0, False: 0}
    for row in rows:
        row["headline"] = headline.get(row["agent"], False)
        places[row["headline"]] += 1
        row["rank"] = places[row["headline"]]
    return rows


def _row(board: Board, name: str, trials: int) -> dict[str, Any]:
    matrix = board.matrix(name, trials)
    # seeds that share their measurements are one sample: no interval
    speedups = matrix.speedups[:1] if matrix.shared else matrix.speedups
    scores = ranked(speedups)
    runs = [record for record in board.records if record.agent == name]
    return {
        "agent": name,
        "kind": board.kind(name).value,
        "geomean": estimate(scores, geomean),
        "median": estimate(scores, median),
        "iqm": estimate(scores, iqm),
        "geomean_unclipped": estimate(unclipped(speedups), geomean),
        "fast_p": {f"{p:g}": fast_p(matrix.measured, p) for p in FAST_P},
        "against": {
            "naive": _ratio(scores, np.ones_like(scores)),
            **{other: _against(board, name, other, trials) for other in OTHERS if other != name},
        },
        "roofline": _roofline(matrix.flat),
        **{standing.value: matrix.count(standing) for standing in Standing},
        **_spent(runs),
    }


def _against(board: Board, name: str, other: str, trials: int) -> dict[str, Any] | None:
    """How many times as fast as `other`: over the workloads where it has verified numbers, and `name` has
    an answer. What is not verified of that answer counts as in the ranking."""
    if other not in board.plan.agents:
        return None
    mine, theirs = board.matrix(name, trials), board.matrix(other, trials)
    both = np.isfinite(theirs.measured).all(axis=0) & mine.applies
    if not both.any():
        return None
    ours, others = (_scores(board, who, trials)[:, both] for who in (name, other))
    return _ratio(ours[:1] if mine.shared and theirs.shared else ours, others)


def _scores(board: Board, name: str, trials: int) -> Scores:
    """Scores of a row: searches keep the unscheduled program where they find nothing faster, references
    are what they are."""
    speedups = board.matrix(name, trials).speedups
    return unclipped(speedups) if board.kind(name) is Kind.REFERENCE else ranked(speedups)


def _ratio(ours: Scores, theirs: Scores) -> dict[str, Any]:
    low, high = ratio_interval(ours, theirs) or (None, None)
    value = float(geomean(ours) / geomean(theirs))
    return {"geomean": value, "low": low, "high": high, "workloads": ours.shape[-1]}


def _roofline(cells: Sequence[Verified]) -> float | None:
    shares = [c.floor_us / c.best_us for c in cells if c.floor_us and c.best_us]
    return statistics.fmean(shares) if shares else None


def _spent(runs: Sequence[Record]) -> dict[str, float | None]:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    used = [record.used for record in runs]
    return {
        "trials_used": mean([u.trials for u in used]),
        "failures": mean([u.failures for u in used]),
        "compiles": mean([u.compiles for u in used]),
        "steps": mean([u.steps for u in used]),
        "tokens": mean([u.tokens for u in used]),
        "wall_s": mean([u.wall_s for u in used]),
    }
