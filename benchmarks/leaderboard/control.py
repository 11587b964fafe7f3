"""`measure_control`: the unscheduled program against a second build of itself, timed like any other.

Everywhere else identical machine code is exactly as fast by definition; here it is not, so that the
ratio shows what the measurement adds.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tirgym.harness.backend import backend
from tirgym.harness.buffers import Poison
from tirgym.harness.file_lock import FileLock, timing_lock_path
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.timing import FULL_PLAN, PLANS, Call, TimingPlan, interleave, stats_of
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Regime, Workload

__all__ = ["ControlResult", "measure_control"]

ATTEMPTS = 3
"""Timings before a pair counts as noisy."""


@dataclass(frozen=True, slots=True)
class ControlResult:
    """First build / second build of one program."""

    status: Status
    message: str = ""
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    best_us: float | None = None
    naive_us: float | None = None
    code_key: str = ""


def measure_control(
    workload: Workload, target: Target, plan: TimingPlan = FULL_PLAN
) -> ControlResult:
    """Gate and time, in this process, whatever number of threads libraries and whatever pages memory
    has here; `measure_apart` gives it those of a worker."""
    compiler = backend(target.backend)
    naive = compiler.module_json(compiler.start(workload, target))
    lock = timing_lock_path()
    rules = Rules(secrets.token_bytes(32), 0, dict(PLANS), None, lock, 100.0, 10.0)
    bench = Workbench(workload, naive, target, rules)
    second = bench.build(naive)
    call = Call(second.load(), bench.bench.arguments())
    sets = [bench.draw(regime, "control") for regime in Regime]
    outcome, gate = bench.gate(call.function, sets)
    if outcome.status is not Status.PASSED:
        return ControlResult(outcome.status, outcome.message, code_key=second.code_key)
    timed = next(given for given in sets if given.regime is Regime.NORMAL)
    for side in (bench.bench, bench.baseline):
        side.prepare(timed, Poison.HIGH)
    with FileLock(lock):
        for _ in range(ATTEMPTS):
            estimates = (gate.seconds, bench.naive_s)
            paired = interleave(call, bench.naive, estimates, plan, bench.timer)
            if not paired.noisy:
                break
    if paired.noisy:
        text = "the timings spread too far to give a number"
        return ControlResult(Status.NOISY, text, code_key=second.code_key)
    return ControlResult(
        Status.PASSED,
        "",
        paired.ratio,
        paired.interval,
        stats_of(paired.candidate).lower_quartile_us,
        stats_of(paired.baseline).lower_quartile_us,
        second.code_key,
    )
