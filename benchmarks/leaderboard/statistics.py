"""Statistics of a board, as published: aggregates, bootstrap intervals, profiles, improvement.

Scores are float64 arrays of shape (…, seeds, workloads); leading axes are kept, so that a statistic of
all bootstrap resamples is one call. Median, IQM, stratified bootstrap, performance profiles and
probability of improvement follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice", NeurIPS 2021 (rliable); fast_p follows Ouyang et al., "KernelBench", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tirgym.errors import InvalidValueError

__all__ = [
    "UNVERIFIED",
    "Scores",
    "estimate",
    "fast_p",
    "geomean",
    "improvement",
    "improvement_interval",
    "interval",
    "iqm",
    "median",
    "profile",
    "ranked",
    "ratio_interval",
    "unclipped",
]

Scores = NDArray[np.float64]

UNVERIFIED = 0.5
"""Score of what has no verified speedup: worse than to keep the unscheduled program, which counts 1."""
RESAMPLES = 2000
LEVEL = 0.95


def unclipped(speedups: ArrayLike) -> Scores:
    """Verified speedups as scores: what is no positive finite number counts `UNVERIFIED`."""
    values = np.asarray(speedups, dtype=np.float64)
    return np.where(np.isfinite(values) & (values > 0.0), values, UNVERIFIED)


def ranked(speedups: ArrayLike) -> Scores:
    """`unclipped`, where a verified speedup below 1 counts 1: one keeps the unscheduled program."""
    values = np.asarray(speedups, dtype=np.float64)
    good = np.isfinite(values) & (values > 0.0)
    return np.where(good, np.maximum(values, 1.0), UNVERIFIED)


def geomean(scores: ArrayLike) -> Scores:
    """Geometric mean over seeds and workloads."""
    return np.asarray(np.exp(np.mean(np.log(_checked(scores)), axis=(-2, -1))))


def median(scores: ArrayLike) -> Scores:
    """Median over workloads of the mean over seeds (rliable's aggregate median)."""
    return np.asarray(np.median(np.mean(_checked(scores), axis=-2), axis=-1))


def iqm(scores: ArrayLike) -> Scores:
    """Interquartile mean: of all seeds and workloads, without a quarter of them at each end.

    The number left out at each end is rounded down, as `scipy.stats.trim_mean(…, 0.25)` does.
    """
    values = _checked(scores)
    flat = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(np.mean(flat[..., cut : flat.shape[-1] - cut], axis=-1))


def fast_p(speedups: ArrayLike, p: float) -> float:
    """Share of runs that are verified and more than `p` times as fast as the unscheduled program.

    `speedups` are verified ones, NaN where there is none. fast_0 is the share of verified runs.
    """
    values = np.asarray(speedups, dtype=np.float64)
    if values.size == 0:
        raise InvalidValueError("speedups", "an empty array", "at least one run")
    return float(np.mean(np.where(np.isfinite(values), values, 0.0) > p))


def profile(scores: ArrayLike, taus: Sequence[float]) -> Scores:
    """Performance profile: for each of `taus` the share of runs whose score is greater.

    Shape (…, len(taus)).
    """
    values = _checked(scores)
    return np.stack([np.mean(values > tau, axis=(-2, -1)) for tau in taus], axis=-1)


def improvement(first: ArrayLike, second: ArrayLike) -> Scores:
    """Probability that a run of `first` scores more than one of `second` on a random workload.

    The Mann-Whitney statistic by workload, ties counting half, averaged over workloads. Both have the
    same workloads; seeds may differ in number.
    """
    one, two = _checked(first), _checked(second)
    if one.shape[-1] != two.shape[-1]:
        shapes = (one.shape, two.shape)
        raise InvalidValueError("shapes of scores", shapes, "the same number of workloads")
    ahead, behind = one[..., :, None, :], two[..., None, :, :]
    wins = (ahead > behind) + 0.5 * (ahead == behind)
    return np.asarray(np.mean(wins, axis=(-3, -2, -1)))


def interval(
    scores: ArrayLike, statistic: Callable[[Scores], Scores], seed: int = 0
) -> tuple[float, float] | None:
    """95 % percentile interval of `statistic` by the stratified bootstrap; None for a single seed.

    Each workload is a stratum: its seeds are drawn again with replacement, independently of others.
    """
    values = _checked(scores)
    if values.shape[-2] < 2:
        return None
    return _percentiles(statistic(_resampled(values, np.random.default_rng(seed))))


def estimate(scores: Scores, statistic: Callable[[Scores], Scores]) -> dict[str, float | None]:
    """`statistic` with its 95 % `interval` as JSON values: "value", "low" and "high".

    The ends are None for a single seed.
    """
    low, high = interval(scores, statistic) or (None, None)
    return {"value": float(statistic(scores)), "low": low, "high": high}


def improvement_interval(
    first: ArrayLike, second: ArrayLike, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of `improvement`, both sides resampled by workload; None if one has one seed."""
    one, two = _checked(first), _checked(second)
    if min(one.shape[-2], two.shape[-2]) < 2:
        return None
    rng = np.random.default_rng(seed)
    return _percentiles(improvement(_resampled(one, rng), _resampled(two, rng)))


def ratio_interval(
    first: ArrayLike, second: ArrayLike, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of geomean(first) / geomean(second), both sides resampled by workload; None if one
    has a single seed."""
    one, two = _checked(first), _checked(second)
    if min(one.shape[-2], two.shape[-2]) < 2:
        return None
    rng = np.random.default_rng(seed)
    return _percentiles(geomean(_resampled(one, rng)) / geomean(_resampled(two, rng)))


def _percentiles(values: Scores) -> tuple[float, float]:
    tail = 50.0 * (1.0 - LEVEL)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)


def _resampled(values: Scores, rng: np.random.Generator) -> Scores:
    """Shape (RESAMPLES, seeds, workloads)."""
    seeds, workloads = values.shape
    drawn = rng.integers(0, seeds, size=(RESAMPLES, seeds, workloads))
    return values[drawn, np.arange(workloads)]


def _checked(scores: ArrayLike) -> Scores:
    """`scores`, NaN as `UNVERIFIED`; raises InvalidValueError without any."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim < 2 or 0 in values.shape[-2:]:
        accepted = "(seeds, workloads) with at least one of each"
        raise InvalidValueError("shape of scores", values.shape, accepted)
    return np.where(np.isnan(values), UNVERIFIED, values)
