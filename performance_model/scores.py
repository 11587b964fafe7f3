"""`score`: how good predictions are on the programs of one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TOP", "Prediction", "Score", "mean_score", "score", "spearman"]

Vector = NDArray[np.float64]

TOP = 5
"""Programs that "the top" means."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says about several programs; natural logarithms of speedups, each (n,)."""

    expected: Vector
    low: Vector
    high: Vector
    """ends of the interval that should hold the truth as often as the model claims"""


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of predictions; of several kernels, the mean over the kernels."""

    programs: int
    spearman: float | None
    """rank correlation; None with fewer than three programs or no spread"""
    recall: float
    """share of the `TOP` fastest programs that are among the `TOP` predicted to be fastest"""
    best: float
    """speedup of the best of the `TOP` predicted to be fastest, over that of the best of all"""
    error: float
    """root mean square of the difference of log-speedups"""
    coverage: float | None
    """share of truths inside the interval; None for predictions without one"""
    width: float | None
    """mean width of the interval in log-speedup"""


def spearman(first: Sequence[float] | Vector, second: Sequence[float] | Vector) -> float | None:
    """Spearman's rank correlation, ties with mean ranks; None where a side has no spread."""
    a, b = _ranks(first), _ranks(second)
    if len(a) < 3 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Sequence[float] | Vector) -> Vector:
    """Ranks from 0; equal values share their mean rank."""
    array = np.asarray(values, dtype=np.float64)
    _, group, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2)[group]


def score(
    measured: Vector, cut_off: NDArray[np.bool_], expected: Vector, interval: Prediction | None
) -> Score:
    """The score of `expected` (n,) against `measured` (n,) log-speedups of one kernel.

    A truth that was `cut_off` lies at or below its number, how far was not measured: coverage counts
    it as held by every interval that begins below it, other scores take the number for the truth.
    `interval` None leaves coverage out.
    """
    top = min(TOP, len(measured))
    fastest = set(np.argsort(-measured, kind="stable")[:top].tolist())
    chosen = np.argsort(-expected, kind="stable")[:top]
    coverage = width = None
    if interval is not None:
        holds = (measured >= interval.low) & ((measured <= interval.high) | cut_off)
        coverage, width = float(holds.mean()), float((interval.high - interval.low).mean())
    return Score(
        programs=len(measured),
        spearman=spearman(measured, expected),
        recall=len(fastest & set(chosen.tolist())) / top,
        best=math.exp(float(measured[chosen].max() - measured.max())),
        error=float(np.sqrt(((expected - measured) ** 2).mean())),
        coverage=coverage,
        width=width,
    )


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean over kernels, of what each has; the number of programs is their sum.

    Raises ValueError for no kernels.
    """
    if not scores:
        raise ValueError("no kernels to take the mean of")

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    return Score(
        programs=sum(each.programs for each in scores),
        spearman=mean([each.spearman for each in scores]),
        recall=float(np.mean([each.recall for each in scores])),
        best=float(np.mean([each.best for each in scores])),
        error=float(np.mean([each.error for each in scores])),
        coverage=mean([each.coverage for each in scores]),
        width=mean([each.width for each in scores]),
    )
