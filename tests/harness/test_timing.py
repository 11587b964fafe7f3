"""Statistics of timing, with a clock that says what the test wants."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tirgym.harness.timing import (
    FULL_PLAN,
    TRAINING_PLAN,
    Call,
    OneThreadTimer,
    Paired,
    TimingPlan,
    WallTimer,
    bootstrap_interval,
    default_timer,
    interleave,
    lower_quartile,
    stats_of,
)

PLAN = TimingPlan(sample_s=1e-3, budget_s=0.05, min_pairs=4, max_pairs=20, noise_limit=0.1)


class FakeTimer:
    """Seconds by a function of (program, number of its sample); records every request."""

    name = "fake"

    def __init__(self, seconds: Callable[[str, int], float]) -> None:
        self.seconds = seconds
        self.log: list[tuple[str, int]] = []

    def time(self, call: Call, calls: int) -> float:
        program = call.arguments[0]
        self.log.append((program, calls))
        return self.seconds(program, sum(p == program for p, _ in self.log))


def timed(
    seconds: Callable[[str, int], float],
    plan: TimingPlan = PLAN,
    estimates: tuple[float, float] = (1e-4, 4e-4),
) -> tuple[Paired, FakeTimer]:
    timer = FakeTimer(seconds)
    pair = interleave(Call(print, ("A",)), Call(print, ("B",)), estimates, plan, timer)
    return pair, timer


def test_order_is_abba_after_one_warm_call_of_each() -> None:
    _, timer = timed(lambda p, n: 1e-4)
    order = "".join(p for p, _ in timer.log)
    assert order.startswith("AB" + "ABBA" * 5)
    assert order.count("A") == order.count("B")
    assert [calls for _, calls in timer.log[:2]] == [1, 1]


def test_a_sample_lasts_a_millisecond() -> None:
    _, timer = timed(lambda p, n: 1e-4)
    assert {entry for entry in timer.log[2:]} == {("A", 10), ("B", 3)}
    _, timer = timed(lambda p, n: 1.0, estimates=(5e-3, 1.0))
    assert {entry for entry in timer.log[2:]} == {("A", 1), ("B", 1)}


def test_ratio_is_baseline_by_candidate() -> None:
    pair, _ = timed(lambda p, n: 1e-4 if p == "A" else 3e-4)
    assert pair.ratio == pytest.approx(3.0)
    assert pair.interval == pytest.approx((3.0, 3.0))
    assert not pair.noisy


def test_number_of_pairs_follows_budget_and_bounds() -> None:
    assert len(timed(lambda p, n: 1e-4)[0].candidate) == 20  # 2 ms a pair: at most 20
    plan = replace(PLAN, budget_s=0.02)
    assert len(timed(lambda p, n: 1e-4, plan)[0].candidate) == 9  # 1 ms + 3 x 0.4 ms
    assert len(timed(lambda p, n: 1e-4, plan, estimates=(1.0, 1.0))[0].candidate) == 4


def test_interruptions_of_single_samples_do_not_move_the_ratio() -> None:
    """Every fifth sample of the candidate is ten times longer: an average would be off by 1.8."""
    pair, _ = timed(lambda p, n: 1e-3 if p == "A" and n % 5 == 0 else 1e-4)
    assert pair.ratio == pytest.approx(1.0)
    assert np.mean(pair.candidate) > 2 * lower_quartile(np.array(pair.candidate))


def test_a_machine_that_slows_down_meanwhile_does_not_move_the_ratio() -> None:
    pair, _ = timed(lambda p, n: (1e-4 if p == "A" else 2e-4) * (1.0 + n / 10.0))
    assert pair.ratio == pytest.approx(2.0, rel=0.06)


def test_noise_extends_the_measurement_and_then_gives_up() -> None:
    rng = np.random.default_rng(0)
    pair, _ = timed(lambda p, n: 1e-4 * 10 ** rng.uniform(0, 3))
    assert pair.noisy
    assert pair.half_width > PLAN.noise_limit
    assert len(pair.candidate) == 20 * (1 + PLAN.extensions)


def test_noise_that_passes_is_outlasted() -> None:
    rng = np.random.default_rng(0)
    pair, _ = timed(lambda p, n: 1e-4 * (10 ** rng.uniform(0, 3) if n < 20 else 1.0))
    assert not pair.noisy
    assert len(pair.candidate) > 20


def burn() -> None:
    sum(range(200_000))


def test_the_one_thread_timer_counts_work_and_waiting_but_no_preemption() -> None:
    timer = OneThreadTimer()
    work = min(timer.time(Call(burn), 1) for _ in range(5))
    assert timer.time(Call(time.sleep, (0.05,)), 1) >= 0.05, "waiting is no way to hide"
    rivals = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        time.sleep(0.3)
        crowded = [timer.time(Call(burn), 20) for _ in range(5)]
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
    assert np.median(crowded) < 2.2 * work, "each of three processes had a third of a core"


def test_the_default_timer_follows_the_number_of_threads() -> None:
    assert default_timer(2).name == "perf_counter_ns"
    assert default_timer(1).name in ("thread_time_ns", "perf_counter_ns")


def test_lower_quartile_is_an_order_statistic() -> None:
    assert lower_quartile(np.array([4.0, 1.0, 3.0, 2.0])) == 2.0
    assert lower_quartile(np.array([5.0])) == 5.0
    assert lower_quartile(np.arange(40.0).reshape(2, 20)).tolist() == [5.0, 25.0]


def test_stats_in_microseconds() -> None:
    stats = stats_of([i * 1e-6 for i in range(1, 101)])
    assert stats.lower_quartile_us == pytest.approx(26.0)
    assert stats.median_us == pytest.approx(51.0)
    assert stats.p95_us == pytest.approx(96.0)
    assert stats.p99_us == pytest.approx(100.0)
    assert stats.samples == 100


def test_the_interval_is_deterministic_and_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        a, b = ((1e-4 * t * rng.lognormal(0.0, 0.05, 40)).tolist() for t in (1.0, 2.0))
        low, high = bootstrap_interval(a, b, resamples=300)
        assert (low, high) == bootstrap_interval(a, b, resamples=300)
        held += low <= 2.0 <= high
    assert 0.88 <= held / 200 <= 1.0


def test_the_wall_timer_counts_calls() -> None:
    count: list[int] = []
    seconds = WallTimer().time(Call(count.append, (1,)), 50)
    assert len(count) == 50
    assert 0.0 < seconds < 1.0


def test_the_full_plan_is_more_thorough_than_the_training_plan() -> None:
    assert FULL_PLAN.budget_s > TRAINING_PLAN.budget_s
    assert FULL_PLAN.noise_limit < TRAINING_PLAN.noise_limit
    assert TRAINING_PLAN.sample_s >= 1e-3
