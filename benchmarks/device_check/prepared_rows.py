"""The rows of prepared programs: TVM's CUDA kernels gated and timed on the device, without TVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tirgym.benchmarks.device_check.bench import LOST, DeviceCheck, OutOfTimeError
from tirgym.benchmarks.device_check.plan import CHECKED
from tirgym.benchmarks.device_check.rows import Row, vendor_of, verdict_of
from tirgym.benchmarks.device_check.trial import Trial
from tirgym.errors import (
    BackendUnavailableError,
    CompileFailedError,
    DamagedFileError,
    TrustedProgramError,
    UsageError,
)
from tirgym.harness.cuda.prepared import UNSCHEDULED, PreparedKernel, PreparedProgram
from tirgym.harness.cuda.program import CudaProgram
from tirgym.harness.status import Status
from tirgym.harness.triton.device.evaluator import Versus
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.performance_model.scores import spearman

__all__ = ["DAMAGED", "UNAVAILABLE", "prepared"]

DAMAGED, UNAVAILABLE = "damaged", "unavailable"
"""status of a file that cannot be read, and of programs that this machine cannot load"""


def prepared(check: DeviceCheck, name: str) -> Row:
    """All programs of one file: each gated and timed beside the unscheduled one; the fastest in every
    regime, beside the compiler's default, the vendor's kernel, and itself compiled here."""
    try:
        kernel = PreparedKernel.load(check.prepared[name])
        workload = kernel.problem.stated()
    except (DamagedFileError, UsageError) as error:
        return {"status": DAMAGED, "message": str(error)}
    row: Row = {
        "workload": workload.uri,
        "prepared_for": kernel.arch,
        "code": _form(check, kernel),
        "versions": dict(kernel.versions),
        "checked_at": kernel.checked_at,
        "programs": len(kernel.programs),
    }
    trials: list[Trial] = []
    try:
        _measure(check, kernel, workload, trials)
        return row | _told(kernel, trials) | _beside(check, kernel, workload, trials)
    except OutOfTimeError as error:
        return row | _told(kernel, trials) | {"status": "not_reached", "message": str(error)}
    except BackendUnavailableError as error:
        return row | {"status": UNAVAILABLE, "message": str(error)}
    except TrustedProgramError as error:
        return row | {"status": str(Status.WRONG_RESULT), "message": str(error)}


def _form(check: DeviceCheck, kernel: PreparedKernel) -> str:
    whole = all(program.cubin for program in kernel.programs)
    return "binary" if whole and kernel.arch == check.arch else "CUDA C, compiled here by NVRTC"


def _measure(
    check: DeviceCheck, kernel: PreparedKernel, workload: Workload, trials: list[Trial]
) -> None:
    """A trial of each program, as far as the budget goes. The first is what the others are judged by:
    its compiler's refusal ends the row."""
    baseline = kernel.program(kernel.programs[0])
    floor_us = check.bound_us(kernel.problem.nbytes, kernel.problem.flops, workload.kernel.dtype)
    for program in kernel.programs:
        runnable = kernel.program(program)
        found = check.trial(
            baseline, runnable, CHECKED, floor_us, program.name, program.predicted_us
        )
        trials.append(found)


def _told(kernel: PreparedKernel, trials: list[Trial]) -> Row:
    """What follows from the trials alone."""
    passed = [trial for trial in trials if trial.passed]
    failed = [trial for trial in trials if not trial.passed]
    pairs = [
        (trial.predicted_us, 1.0 / trial.speedup)
        for trial in passed
        if trial.predicted_us is not None and trial.speedup
    ]
    message = "; ".join(f"{trial.program}: {trial.status}" for trial in failed)
    return {
        "status": str(Status.PASSED) if passed else (failed[0].status if failed else "not_reached"),
        "message": message,
        "trials": [trial.to_json() for trial in trials],
        "passed": len(passed),
        "predicted_by": kernel.predicted_by,
        "spearman": _rank(pairs),
    }


def _rank(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 3:
        return None
    return spearman([predicted for predicted, _ in pairs], [time for _, time in pairs])


def _beside(
    check: DeviceCheck, kernel: PreparedKernel, workload: Workload, trials: list[Trial]
) -> Row:
    """The fastest program beside others; nothing where none passed in every regime."""
    by_name = {program.name: program for program in kernel.programs}
    baseline = kernel.program(by_name[UNSCHEDULED])
    for trial in sorted(
        (trial for trial in trials if trial.passed), key=lambda trial: -(trial.speedup or 0.0)
    ):
        chosen = by_name[trial.program]
        runnable = kernel.program(chosen)
        verdict = verdict_of(check, baseline, runnable, tuple(Regime))
        if verdict["status"] == Status.PASSED:
            break
    else:
        return {}
    row: Row = {
        "best": trial.to_json(),
        "best_verdict": verdict,
        "gbs": kernel.problem.nbytes / (trial.latency_us or 1.0) * 1e-3,
        "gflops": kernel.problem.flops / (trial.latency_us or 1.0) * 1e-3,
    }
    default = _default(kernel)
    if default is not None:
        found = _versus(check, baseline, kernel.program(default), runnable)
        row["default"] = {"program": default.name, **found}
    if chosen.cubin and kernel.arch == check.arch:
        row["nvrtc"] = _versus(check, baseline, replace(runnable, cubin=b""), runnable)
    return row | vendor_of(check, baseline, runnable, workload.kernel.name)


def _default(kernel: PreparedKernel) -> PreparedProgram | None:
    """The compiler's own schedule: the one without transforms besides the unscheduled program."""
    others = kernel.programs[1:]
    return next((program for program in others if not program.transforms), None)


def _versus(
    check: DeviceCheck, baseline: CudaProgram, first: CudaProgram, second: CudaProgram
) -> dict[str, Any]:
    """Time of the first over the second's, interleaved, or why there is none."""
    try:
        found: Versus = check.ask("compare", baseline, first, second, CHECKED)
    except (*LOST, CompileFailedError, BackendUnavailableError) as error:
        found = Versus(None, None, False, str(error))
    return {"ratio": found.ratio, "interval": found.interval, "message": found.message}
