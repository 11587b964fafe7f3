"""The rows of a check: correctness, the vendor's kernel, searches beside the autotuner, ranking."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tirgym.benchmarks.device_check.bench import LOST, Candidate, DeviceCheck
from tirgym.benchmarks.device_check.draws import random_configs, shortened
from tirgym.benchmarks.device_check.plan import CHECKED
from tirgym.benchmarks.device_check.trial import Trial
from tirgym.errors import TrustedProgramError
from tirgym.harness.status import Status
from tirgym.harness.triton.device.device import Runnable
from tirgym.harness.triton.device.evaluator import VendorTime
from tirgym.harness.triton.device.vendor import NO_VENDOR
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import bytes_of
from tirgym.performance_model.scores import spearman

__all__ = [
    "checked",
    "copy",
    "correctness",
    "ranking",
    "seeded",
    "vendor",
    "vendor_fields",
    "vendor_of",
    "verdict_of",
]

Row = dict[str, Any]


def seeded(check: DeviceCheck, purpose: str, kernel: str) -> np.random.Generator:
    """A generator of its own for each purpose and kernel."""
    return np.random.default_rng([check.plan.seed, *purpose.encode(), *kernel.encode()])


def copy(check: DeviceCheck, _: str) -> Row:
    """Bandwidth of a large copy, which bounds everything else."""
    gbs = check.ask("copy_gbs", check.plan.copy_bytes)
    return {"status": str(Status.PASSED), "gbs": gbs, "bytes": check.plan.copy_bytes}


def correctness(check: DeviceCheck, kernel: str) -> Row:
    """The default configuration: every regime at an odd size, some at the size that is timed."""
    odd, timed = check.plan.odd_workload(kernel), check.plan.workload(kernel)
    row: Row = {"workload": timed.uri, "odd_workload": odd.uri}
    for size, workload, regimes in (("odd", odd, tuple(Regime)), ("timed", timed, CHECKED)):
        found = checked(check, workload, check.default(workload), regimes)
        row[size] = found
        row |= {"status": found["status"], "message": found["message"]}
        if found["status"] != Status.PASSED:
            break
    return row


def checked(
    check: DeviceCheck, workload: Workload, candidate: Candidate, regimes: Sequence[Regime]
) -> Row:
    """Verdict on `candidate` in `regimes`."""
    return verdict_of(check, check.default(workload).binary, candidate.binary, regimes)


def verdict_of(
    check: DeviceCheck, default: Runnable, binary: Runnable, regimes: Sequence[Regime]
) -> Row:
    """Verdict on `binary` in `regimes`."""
    try:
        status, report = check.ask("check", default, binary, tuple(regimes))
    except TrustedProgramError as error:
        return {"status": str(Status.WRONG_RESULT), "message": str(error), "regimes": []}
    return {
        "status": str(status),
        "message": report.failure,
        "regimes": list(report.regimes),
        "worst_error": report.worst_error,
    }


def vendor(check: DeviceCheck, kernel: str) -> Row:
    """The default configuration beside torch, and beside a copy of as many bytes."""
    workload = check.plan.workload(kernel)
    candidate = check.default(workload)
    trial = check.evaluate(workload, candidate)
    row: Row = {"workload": workload.uri, "status": trial.status, "message": trial.message}
    if not trial.passed or trial.latency_us is None:
        return row
    nbytes = bytes_of(workload)
    row |= {
        "default_us": trial.latency_us,
        "gbs": nbytes / trial.latency_us * 1e-3,
        "copy_gbs": check.ask("copy_gbs", max(1, nbytes // 2)),
        "timer": trial.timer,
    }
    return row | vendor_fields(check, workload, candidate)


def vendor_fields(check: DeviceCheck, workload: Workload, candidate: Candidate) -> Row:
    """torch's time over the candidate's, or why there is none."""
    default = check.default(workload).binary
    return vendor_of(check, default, candidate.binary, workload.kernel.name)


def vendor_of(check: DeviceCheck, default: Runnable, binary: Runnable, kernel: str) -> Row:
    """The same of any binary of a kernel."""
    try:
        found: VendorTime | None = check.ask("vendor", default, binary)
    except LOST as error:
        return {"vendor": None, "vendor_why": str(error)}
    if found is None:
        why = NO_VENDOR.get(kernel, "torch has no kernel for it")
        return {"vendor": None, "vendor_why": why}
    return {
        "vendor": {
            "us": found.vendor.lower_quartile_us,
            "ratio": found.ratio,
            "interval": found.interval,
            "noisy": found.noisy,
            "deviation": found.deviation,
            "ours": asdict(found.ours),
            "theirs": asdict(found.vendor),
        }
    }


def ranking(check: DeviceCheck, kernel: str) -> Row:
    """Spearman of the static cost with measured time, over random configurations and pipelines."""
    plan, workload = check.plan, check.plan.workload(kernel)
    default = check.default(workload)
    source, stock = default.request.source, default.request.passes
    rng = seeded(check, "ranking", kernel)
    drawn = check.compiled(workload, random_configs(source, rng, plan.ranked_configs))
    others = shortened(stock, rng, plan.ranked_pipelines)
    drawn += check.shortened(workload, source.default_config, others)
    trials: dict[str, Trial] = {}
    row: Row = {"workload": workload.uri, "drawn": len(drawn), "status": str(Status.PASSED)}
    for candidate in drawn:
        if candidate.launchable or candidate.failed:
            trials[candidate.key] = check.evaluate(workload, candidate)
    pairs = [
        (trial.predicted_us, 1.0 / trial.speedup)
        for trial in trials.values()
        if trial.passed and trial.speedup and trial.predicted_us is not None
    ]
    times = [time for _, time in pairs]
    row |= {
        "message": "",
        "measured": len(pairs),
        "spearman": spearman([p for p, _ in pairs], times) if pairs else None,
        "spread": max(times) / min(times) if times else None,
        "median_over_best": statistics.median(times) / min(times) if times else None,
        "verdicts": _counted([trial.status for trial in trials.values()]),
        "failures": [t.to_json() for t in trials.values() if not t.passed],
    }
    return row


def _counted(statuses: Sequence[str]) -> dict[str, int]:
    return {status: statuses.count(status) for status in sorted(set(statuses))}
