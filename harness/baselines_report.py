"""`measure_baselines`: what a kernel takes without tirgym, measured now, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tirgym.harness.backend import backend
from tirgym.harness.calibration import peaks
from tirgym.harness.default_schedule import default_program
from tirgym.harness.evaluation import Evaluation, TimingStats
from tirgym.harness.hardware import runs_on_cpu
from tirgym.harness.in_sessions import in_sessions
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.static_profile import roofline, static_profile
from tirgym.harness.target import Target
from tirgym.harness.vendor import (
    LIBRARIES,
    libraries_with,
    measure_vendor,
    vendor_libraries,
)
from tirgym.harness.verification import evaluate_in_sessions
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.registry import LOCAL_SUITE

__all__ = ["BaselineRow", "measure_baselines"]


@dataclass(frozen=True, slots=True)
class BaselineRow:
    """One way to compute a workload."""

    name: str
    """naive, default, or vendor"""
    what: str
    """the schedule or library behind it"""
    status: str
    """verdict of the gate, or "none" where there is no such baseline"""
    message: str = ""
    stats: TimingStats | None = None
    speedup: float | None = None
    """over naive, from interleaved samples"""
    speedup_ci: tuple[float, float] | None = None
    gflops: float | None = None
    """arithmetic of the kernel's definition / lower-quartile time"""
    roofline_fraction: float | None = None
    """share of what this machine can do, see `tirgym.harness.static_profile.roofline`"""
    sessions: tuple[float, ...] = ()
    """speedups of the processes that could be measured, as in `Evaluation`"""


def measure_baselines(
    workload: Workload,
    target: Target,
    evaluator: LocalEvaluator,
    on_row: Callable[[str], None] | None = None,
) -> tuple[BaselineRow, ...]:
    """naive, the compiler's own default, and each installed library, all measured anew, each in several
    processes: the median session (`tirgym.harness.in_sessions`), for naive the one of median time.

    `on_row` hears the name of what is measured next.
    """
    announce = on_row or (lambda name: None)
    announce("naive")
    start = backend(target.backend).start(workload, target)
    naive = evaluate_in_sessions(evaluator, start)
    rows = [_compiled("naive", "unscheduled IR", naive, start)]
    announce("default")
    rows.append(_default(start, evaluator))
    own = workload.kernel.suite == LOCAL_SUITE
    libraries = () if own else vendor_libraries(workload.kernel.name, target.backend)
    for library in libraries:
        announce(library)
        rows.append(_vendor(library, start))
    if not libraries:
        why = missing_vendor(workload.kernel, target.backend)
        rows.append(BaselineRow("vendor", "none", "none", why))
    return tuple(rows)


def missing_vendor(kernel: Kernel, backend: str) -> str:
    """Why there is no vendor row: no library has one call for `kernel` there, or it is not installed."""
    if all(backend not in library.backends for library in LIBRARIES.values()):
        return f"the libraries known here do not run on backend {backend}"
    known = libraries_with(kernel.name, backend)
    if kernel.suite == LOCAL_SUITE or not known:
        return "no library has one call for this kernel"
    return f"{' or '.join(known)} has one, but is not installed"


def _default(start: Program, evaluator: LocalEvaluator) -> BaselineRow:
    made = default_program(start.workload, start.target)
    if made is None:
        return BaselineRow("default", "none", "none", "the compiler has no default schedule for it")
    program, rule = made
    return _compiled("default", rule, evaluate_in_sessions(evaluator, program), start)


def _compiled(name: str, what: str, evaluation: Evaluation, start: Program) -> BaselineRow:
    status, found = evaluation.status.value, evaluation.sessions
    measured = evaluation.measurement
    if measured is None:
        return BaselineRow(name, what, status, evaluation.message, sessions=found)
    stats, interval = measured.candidate, measured.speedup_ci
    rates = _rates(stats, start)
    return BaselineRow(name, what, status, "", stats, measured.speedup, interval, *rates, found)


def _vendor(library: str, start: Program) -> BaselineRow:
    found = in_sessions(lambda: measure_vendor(start.workload, start.target, library))
    result = found.answer
    what, status = result.version, result.status.value
    if result.stats is None:
        message = found.message or result.message
        return BaselineRow("vendor", what, status, message, sessions=found.speedups)
    return BaselineRow(
        "vendor",
        what,
        status,
        result.message,
        result.stats,
        result.speedup,
        found.interval,
        *_rates(result.stats, start),
        found.speedups,
    )


def _rates(stats: TimingStats, start: Program) -> tuple[float, float | None]:
    """GFLOP/s and the share of the roofline, None where the peaks are not known; both count what the
    kernel needs, not what was done."""
    profile = static_profile(start, assembly=False)
    if not runs_on_cpu(start.target):
        return profile.useful_flops / (stats.lower_quartile_us * 1e3), None
    place = roofline(start, profile, stats.lower_quartile_us, peaks(start.target))
    return place.achieved_gflops, place.fraction
