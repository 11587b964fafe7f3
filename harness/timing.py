"""Timing: two programs interleaved ABBA, the ratio of lower quartiles, and its interval."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.evaluation import Level, TimingStats

__all__ = [
    "ANCHOR_PLAN",
    "COLD",
    "FULL_PLAN",
    "PLANS",
    "TRAINING_PLAN",
    "Call",
    "OneThreadTimer",
    "Paired",
    "Timer",
    "TimingPlan",
    "WallTimer",
    "default_timer",
    "interleave",
    "stats_of",
]


COLD = "_cold"
"""end of the name of a clock that empties the cache before each call"""


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Timer(Protocol):
    """A clock that times calls; a fake one lets statistics be tested without real time."""

    @property
    def name(self) -> str:
        """Stands in each measurement."""

    def time(self, call: Call, calls: int) -> float:
        """Run `call` `calls` times back to back; seconds for one call."""


class WallTimer:
    """`time.perf_counter_ns` around a plain loop; 0.2 µs a call are the loop's own."""

    name = "perf_counter_ns"

    def time(self, call: Call, calls: int) -> float:
        """Seconds for one call."""
        function, arguments = call.function, call.arguments
        start = time.perf_counter_ns()
        for _ in range(calls):
            function(*arguments)
        return (time.perf_counter_ns() - start) * 1e-9 / calls


class OneThreadTimer:
    """Wall time without what other processes took the core for: CPU time of the calling thread.

    On an idle machine it equals wall time. A kernel cannot hide work from it: code on other threads
    has to be waited for, and a wait either spins, which is CPU time, or gives the core up, which
    the system counts as a voluntary switch (getrusage, `ru_nvcsw`); such samples take wall time.
    """

    name = "thread_time_ns"

    def time(self, call: Call, calls: int) -> float:
        """Seconds for one call."""
        function, arguments = call.function, call.arguments
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        for _ in range(calls):
            function(*arguments)
        cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
        waited = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw != switches
        return (wall if waited else min(cpu, wall)) * 1e-9 / calls


def default_timer(num_threads: int) -> Timer:
    """`OneThreadTimer` for one thread where the system can count switches, else `WallTimer`."""
    one = num_threads == 1 and hasattr(resource, "RUSAGE_THREAD")
    return OneThreadTimer() if one else WallTimer()


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """How much time a measurement may take, and when it is good enough."""

    sample_s: float
    """a sample is as many calls as take this long, at least one"""
    budget_s: float
    """time for both sides together, as long as `min_pairs` are done"""
    min_pairs: int
    max_pairs: int
    noise_limit: float
    """NOISY if half the 95 % interval is wider than this share of the ratio"""
    extensions: int = 2
    """how often a noisy measurement may go on for another budget"""
    resamples: int = 1000


TRAINING_PLAN = TimingPlan(1e-3, 0.045, 5, 20, 0.3)
FULL_PLAN = TimingPlan(2e-3, 0.8, 12, 60, 0.2)
ANCHOR_PLAN = replace(FULL_PLAN, budget_s=0.4, max_pairs=40, noise_limit=0.3, extensions=1)
PLANS = {Level.TRAINING: TRAINING_PLAN, Level.FULL: FULL_PLAN}


@dataclass(frozen=True, slots=True)
class Paired:
    """Seconds a call of candidate and baseline, sample by sample, and what follows from them."""

    candidate: tuple[float, ...]
    baseline: tuple[float, ...]
    ratio: float
    """baseline time / candidate time, from lower quartiles"""
    interval: tuple[float, float]
    """95 % bootstrap interval of `ratio`"""
    noisy: bool
    runs_s: float
    """wall seconds inside the two kernels"""

    @property
    def half_width(self) -> float:
        """Half the width of the interval, as a share of the ratio."""
        return (self.interval[1] - self.interval[0]) / (2.0 * self.ratio)


def lower_quartile(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """The order statistic at a quarter of the last axis: index n // 4, no interpolation."""
    rank = samples.shape[-1] // 4
    found: NDArray[np.float64] = np.partition(samples, rank, axis=-1)[..., rank]
    return found


def stats_of(seconds: Sequence[float]) -> TimingStats:
    """Lower quartile, median, P95 and P99 in µs (percentiles: nearest rank, upwards)."""
    us = np.asarray(seconds, dtype=np.float64) * 1e6
    median, p95, p99 = np.percentile(us, [50.0, 95.0, 99.0], method="higher")
    quartile = float(lower_quartile(us))
    return TimingStats(quartile, float(median), float(p95), float(p99), len(us))


def bootstrap_interval(
    candidate: Sequence[float], baseline: Sequence[float], resamples: int = 1000
) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the ratio of lower quartiles, baseline / candidate.

    Pairs are drawn together, since neighbours in time share the state of the machine (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, chapters 13 and 8.6). The generator is
    seeded with a constant, so that equal samples give equal intervals.
    """
    a, b = np.asarray(candidate, np.float64), np.asarray(baseline, np.float64)
    draws = np.random.default_rng(0).integers(0, len(a), (resamples, len(a)))
    ratios = lower_quartile(b[draws]) / lower_quartile(a[draws])
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def interleave(
    candidate: Call,
    baseline: Call,
    estimates_s: tuple[float, float],
    plan: TimingPlan,
    timer: Timer,
) -> Paired:
    """Time both in the order A B B A A B B A …; `estimates_s` are rough seconds for a call of each.

    Stops at `max_pairs`, or once the budget is spent and `min_pairs` are done; goes on for another
    budget, at most `extensions` times, while the interval is wider than the noise limit.
    """
    calls = [max(1, math.ceil(plan.sample_s / max(t, 1e-8))) for t in estimates_s]
    pair_s = sum(n * t for n, t in zip(calls, estimates_s, strict=True))
    batch = min(plan.max_pairs, max(plan.min_pairs, int(plan.budget_s / max(pair_s, 1e-9))))
    a: list[float] = []
    b: list[float] = []
    sides = ((candidate, calls[0], a), (baseline, calls[1], b))
    for call, _, _ in sides:  # touch code and data once, untimed by anyone
        timer.time(call, 1)
    noisy, runs_s = True, 0.0
    for _ in range(plan.extensions + 1):
        began = time.perf_counter()
        for _ in range(batch):
            for call, count, samples in sides if len(a) % 2 == 0 else sides[::-1]:
                samples.append(timer.time(call, count))
        runs_s += time.perf_counter() - began
        ratio = float(lower_quartile(np.asarray(b)) / lower_quartile(np.asarray(a)))
        interval = bootstrap_interval(a, b, plan.resamples)
        if interval[1] - interval[0] <= 2.0 * plan.noise_limit * ratio:
            noisy = False
            break
    return Paired(tuple(a), tuple(b), ratio, interval, noisy, runs_s)
