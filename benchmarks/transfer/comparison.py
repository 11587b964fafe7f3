"""Statistics where a seed is one policy that plays all workloads: whole seeds, and paired ratios.

A board's `tirgym.benchmarks.leaderboard.statistics.interval` draws the seeds of each workload apart,
which holds where runs are independent from workload to workload. Here one training is behind all
runs of a seed: what it learned well or badly shows on many workloads at once, and drawn apart that
averages out. Scores are float64 arrays (seeds, workloads), as there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tirgym.benchmarks.leaderboard.statistics import LEVEL, Scores, geomean
from tirgym.errors import InvalidValueError

__all__ = ["Ratio", "by_seed", "paired_ratio", "seed_interval"]

RESAMPLES = 10_000


def by_seed(scores: ArrayLike) -> list[float]:
    """Geometric mean over the workloads of each seed."""
    return [float(geomean(row[None])) for row in np.asarray(scores, dtype=np.float64)]


def seed_interval(scores: ArrayLike, seed: int = 0) -> tuple[float, float] | None:
    """95 % percentile interval of `geomean`, whole seeds drawn again; None for a single seed.

    One draw of seeds serves all workloads. With up to three seeds the ends are the lowest and the
    highest seed: all draws are of one seed with probability 1/27 at three, more than the 2.5 % that
    are cut off. Such a range holds the median of all seeds with probability 1 - 2 * 0.5**3 = 75 %, not
    95 %.
    """
    logs = np.log(by_seed(scores))
    if len(logs) < 2:
        return None
    return _percentiles(logs, seed)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast the answers of one player are as those of another."""

    ratio: float
    """geometric mean over workloads"""
    low: float | None
    """of the 95 % interval over workloads; None for a single workload"""
    high: float | None
    ahead: int
    """workloads on which the first player's mean is the greater"""
    workloads: int


def paired_ratio(first: ArrayLike, second: ArrayLike, seed: int = 0) -> Ratio:
    """`first` over `second`, paired by workload: the geometric means over seeds, workload by workload.

    The interval is the percentile bootstrap over workloads. It says how much the ratio hangs on which
    of these workloads were played; the seeds that were run are taken as they are. Raises
    InvalidValueError for different numbers of workloads; seeds may differ in number.
    """
    one, two = (_over_seeds(scores) for scores in (first, second))
    if one.shape != two.shape:
        shapes = (one.shape, two.shape)
        raise InvalidValueError("shapes of scores", shapes, "the same number of workloads")
    logs = one - two
    low, high = _percentiles(logs, seed) if len(logs) > 1 else (None, None)
    return Ratio(float(np.exp(logs.mean())), low, high, int((logs > 0.0).sum()), len(logs))


def _over_seeds(scores: ArrayLike) -> Scores:
    """(workloads,): mean log score over seeds."""
    values = np.asarray(scores, dtype=np.float64)
    return np.asarray(np.log(values).mean(axis=0))


def _percentiles(logs: Scores, seed: int) -> tuple[float, float]:
    """exp of the ends of the `LEVEL` interval of the mean of `logs` (n,), all n drawn again."""
    drawn = np.random.default_rng(seed).integers(0, len(logs), size=(RESAMPLES, len(logs)))
    tail = 50.0 * (1.0 - LEVEL)
    low, high = np.exp(np.percentile(logs[drawn].mean(axis=1), [tail, 100.0 - tail]))
    return float(low), float(high)
