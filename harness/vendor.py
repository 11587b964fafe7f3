"""`measure_vendor`: a library call of the same operation, gated and timed like a candidate.

Each measurement runs in a process of its own, since a BLAS takes its thread count from the
environment when it is loaded. There the library call passes the gate (all regimes but `extreme`:
libraries order infinities differently), on the same guarded memory as the unscheduled program, and
is timed interleaved with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tirgym.errors import BackendUnavailableError, UnknownNameError
from tirgym.harness.evaluation import Level, TimingStats
from tirgym.harness.huge_pages import without_huge_pages
from tirgym.harness.own_process import call_apart
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Regime, Workload

if TYPE_CHECKING:  # they are loaded where something is measured
    from tirgym.harness.gate import GateOutcome, InputSet
    from tirgym.harness.workbench import Workbench
    from tirgym.harness.worker_device import Bind, VendorCall

__all__ = [
    "LIBRARIES",
    "GatedCall",
    "Library",
    "VendorResult",
    "gate_call",
    "has_call",
    "libraries_with",
    "measure_vendor",
    "vendor_libraries",
]


@dataclass(frozen=True, slots=True)
class Library:
    """A library, and where its calls are."""

    package: str
    """that it needs"""
    module: str
    """with `bind` and `version`"""
    table: str
    """of its calls by kernel, in the module"""
    backends: tuple[str, ...] = ("llvm",)
    """whose memory its calls work in"""

    def call(self, kernel: str) -> Any:
        """The call for the suite kernel `kernel`; None if there is none."""
        return getattr(import_module(self.module), self.table).get(kernel)


LIBRARIES: Mapping[str, Library] = {
    "numpy": Library("numpy", "tirgym.harness.vendor_numpy", "NUMPY"),
    "numpy-program": Library("numpy", "tirgym.harness.vendor_numpy_programs", "PROGRAMS"),
    "torch": Library("torch", "tirgym.harness.vendor_torch", "TORCH", ("llvm", "cuda")),
}
ATTEMPTS = 3
"""Timings before a library counts as noisy."""


@dataclass(frozen=True, slots=True)
class VendorResult:
    """What a library's own call takes."""

    version: str
    """of the library, its name first"""
    status: Status
    message: str = ""
    """why there is no number"""
    stats: TimingStats | None = None
    speedup: float | None = None
    """unscheduled time / library time, from lower quartiles of interleaved samples"""
    speedup_ci: tuple[float, float] | None = None


def has_call(library: str, kernel: str) -> bool:
    """Whether `library`, installed or not, has a call for the suite kernel called `kernel`."""
    return LIBRARIES[library].call(kernel) is not None


def libraries_with(kernel: str, backend: str) -> tuple[str, ...]:
    """Libraries, installed or not, that have a call for the suite kernel `kernel` on `backend`."""
    return tuple(
        name
        for name, library in LIBRARIES.items()
        if backend in library.backends and has_call(name, kernel)
    )


def vendor_libraries(kernel: str, backend: str) -> tuple[str, ...]:
    """Those of `libraries_with` that are installed."""
    known = libraries_with(kernel, backend)
    return tuple(name for name in known if find_spec(LIBRARIES[name].package) is not None)


def measure_vendor(
    workload: Workload,
    target: Target,
    library: str,
    timeout_s: float = 300.0,
    against: str | None = None,
) -> VendorResult:
    """Gate and time the call of `library` for a workload of a suite, in a process of its own.

    `against` is the module, as the backend's `module_json` writes it, of a program that was found
    right; the call is then timed against that program, and `speedup` is program time / library
    time. Raises UnknownNameError for a library that has no such call here, and EvaluationError if the
    process does not answer.
    """
    known = vendor_libraries(workload.kernel.name, target.backend)
    if library not in known:
        what = f"library for kernel {workload.kernel.name} on backend {target.backend}"
        raise UnknownNameError(what, library, known)
    arguments = (workload.uri, target, library, against)
    threads = target.num_threads
    try:
        result: VendorResult = call_apart(
            _measure, *arguments, num_threads=threads, timeout_s=timeout_s
        )
    except TimeoutError as error:
        return VendorResult(library, Status.TIMEOUT, str(error))
    return result


def _measure(uri: str, target: Target, library: str, against: str | None) -> VendorResult:
    without_huge_pages()
    from tirgym.kernels_suite.registry import load_workload

    return measure_here(load_workload(uri), target, library, against)


def measure_here(
    workload: Workload, target: Target, library: str, against: str | None = None
) -> VendorResult:
    """`measure_vendor` in this process, whatever number of threads BLAS has here."""
    from tirgym.harness.backend import backend
    from tirgym.harness.buffers import Poison
    from tirgym.harness.file_lock import FileLock
    from tirgym.harness.gate import check
    from tirgym.harness.timing import FULL_PLAN, Call, interleave, stats_of

    backend(target.backend)  # the compiler is imported faster before torch than after it
    module = import_module(LIBRARIES[library].module)
    regimes = [regime for regime in Regime if regime is not Regime.EXTREME]
    name = module.version()
    try:
        gated = gate_call(
            workload,
            target,
            lambda arrays: module.bind(workload.kernel.name, arrays, target.num_threads),
            regimes,
        )
    except BackendUnavailableError as error:
        return VendorResult(name, Status.INCOMPLETE, str(error))
    made, timed = gated.workbench, gated.timed
    bench, gate = made.bench, gated.outcome
    if gate.status is not Status.PASSED:
        return VendorResult(name, gate.status, gate.report.failure)
    bench.run(gated.call, timed, Poison.NAN)
    base, base_s = made.naive, made.naive_s
    if against is not None:
        base = Call(made.build(against).load(), made.baseline.arguments())
        base_s = min(made.baseline.run(base.function, timed, Poison.NAN) for _ in range(3))
    estimates = (gate.seconds, base_s)
    with FileLock(made.rules.lock_path):
        for _ in range(ATTEMPTS):
            paired = interleave(gated.call.timed, base, estimates, FULL_PLAN, made.timer)
            if not paired.noisy:
                break
    gated.call.keep()
    bench.fetch()
    failure, _, _ = check(bench, timed)
    if failure:
        return VendorResult(name, Status.WRONG_RESULT, f"after timing: {failure}")
    if paired.noisy:
        return VendorResult(name, Status.NOISY, "the timings spread too far to give a number")
    stats = stats_of(paired.candidate)
    return VendorResult(name, Status.PASSED, "", stats, paired.ratio, paired.interval)


@dataclass(frozen=True)
class GatedCall:
    """A call that went through the gate, and what it was judged on."""

    workbench: Workbench
    outcome: GateOutcome
    call: VendorCall
    timed: InputSet
    """of the regime NORMAL"""


def gate_call(
    workload: Workload,
    target: Target,
    bind: Bind,
    regimes: Sequence[Regime] = tuple(Regime),
) -> GatedCall:
    """Judge, in this process, what `bind` makes of the guarded arrays: inputs, then outputs. They lie
    where the target's programs run, see `WorkerDevice.vendor_call`."""
    from tirgym.harness.backend import backend
    from tirgym.harness.gate import run_gate
    from tirgym.harness.workbench import Workbench

    compiler = backend(target.backend)
    naive = compiler.module_json(compiler.start(workload, target))
    made = Workbench(workload, naive, target, _rules())
    sets = [made.draw(regime, "call") for regime in regimes]
    timed = next(given for given in sets if given.regime is Regime.NORMAL)
    call = made.device.vendor_call((*made.bench.inputs, *made.bench.outputs), bind)
    judged = run_gate(made.bench, call, sets)
    return GatedCall(made, judged, call, timed)


def _rules() -> Any:
    from tirgym.harness.file_lock import timing_lock_path
    from tirgym.harness.timing import PLANS
    from tirgym.harness.workbench import Rules

    plans = {level: PLANS[level] for level in Level}
    return Rules(secrets.token_bytes(32), 0, plans, None, timing_lock_path(), 100.0, 10.0)
