"""`measure_here`: one session, in a process that never saw an agent: recipes become programs, pass the
gate on fresh secret inputs, and are timed anew."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tirgym.benchmarks.leaderboard.control import measure_control
from tirgym.benchmarks.leaderboard.recipes import ProgramMaker
from tirgym.benchmarks.leaderboard.record import Kind, Recipe, RecipeKind
from tirgym.benchmarks.leaderboard.running import versions
from tirgym.benchmarks.leaderboard.verdicts import Session, ShapeVerdict
from tirgym.errors import (
    EvaluationError,
    IllegalTransformError,
    ProcessDiedError,
    UsageError,
)
from tirgym.harness.calibration import Peaks, peaks
from tirgym.harness.default_schedule import default_program
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.hardware import fingerprint
from tirgym.harness.huge_pages import without_huge_pages
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.own_process import call_apart
from tirgym.harness.program import Program
from tirgym.harness.static_profile import roofline, static_profile
from tirgym.harness.status import FATAL, Status
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.vendor import VendorResult, measure_vendor
from tirgym.harness.verification import evaluate_in_full
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = ["NOT_MEASURED", "Job", "measure_apart", "measure_here", "other_shapes"]

NOT_MEASURED = "not_measured"
"""Status of a session that did not take place, for a reason of the machine. It says nothing about the
recipe and stands on no board."""
TIMEOUT_S = 1800.0
"""For each job of a session, waits for other timings on the machine included."""
ATTEMPTS = 2
"""Processes that may die over one job before it counts as a crash."""


@dataclass(frozen=True, slots=True)
class Job:
    """One recipe to measure."""

    recipe: Recipe
    kind: Kind
    shapes: bool
    """also gate it on the kernel's other train and holdout shapes"""


def measure_apart(uri: str, target: Target, jobs: Sequence[Job], session: int) -> list[Session]:
    """One session of some recipes of one workload, in a fresh process.

    A job whose process dies, twice, is a session with status CRASH or TIMEOUT. One that could not be
    measured since the machine failed (a full disk, peaks that cannot be measured, an unscheduled
    program that is wrong), twice, is one with status NOT_MEASURED. The others are not harmed.
    """
    threads, limit_s = target.num_threads, TIMEOUT_S * len(jobs)
    arguments = (uri, target, tuple(jobs), session)
    failures: list[Exception] = []
    for _ in range(ATTEMPTS if len(jobs) == 1 else 1):
        try:
            found: list[Session] = call_apart(
                measure_session, *arguments, num_threads=threads, timeout_s=limit_s
            )
        except (EvaluationError, TimeoutError) as error:
            failures.append(error)
        else:
            return found
    if len(jobs) > 1:
        return [measure_apart(uri, target, [job], session)[0] for job in jobs]
    status, message = _failure_status(failures)
    return [_session(uri, target, jobs[0], session, status, message=message)]


def measure_session(uri: str, target: Target, jobs: Sequence[Job], session: int) -> list[Session]:
    """`measure_here` with ordinary pages alone, as workers and libraries have them: the control runs in
    this process itself."""
    without_huge_pages()
    return measure_here(uri, target, jobs, session)


def _failure_status(failures: Sequence[Exception]) -> tuple[str, str]:
    """Status and message of a job whose process failed each time: the machine's unless it died always."""
    for failure in failures:
        if not isinstance(failure, ProcessDiedError | TimeoutError):
            return NOT_MEASURED, str(failure)
    last = failures[-1]
    return (Status.TIMEOUT if isinstance(last, TimeoutError) else Status.CRASH).value, str(last)


def measure_here(uri: str, target: Target, jobs: Sequence[Job], session: int) -> list[Session]:
    """`measure_apart` in this process."""
    workload = load_workload(uri)
    maker, floor_us = ProgramMaker(workload, target), _floor_us(workload, target)
    with LocalEvaluator(target, ":memory:", seed=secrets.randbits(31)) as evaluator:
        found = [_measured(job, maker, session, evaluator) for job in jobs]
        shapes = _shapes([job for job in jobs if job.shapes], workload, target, evaluator)
    return [
        replace(made, floor_us=floor_us, shapes=shapes.get(job.recipe.digest, {}))
        for job, made in zip(jobs, found, strict=True)
    ]


def _floor_us(workload: Workload, target: Target) -> float:
    """Time at the roof of this machine."""
    start = ProgramMaker(workload, target).start
    known: Peaks = peaks(target)
    return roofline(start, static_profile(start, assembly=False), 1.0, known).floor_us


def _measured(job: Job, maker: ProgramMaker, session: int, evaluator: LocalEvaluator) -> Session:
    """The session of one job, without shapes."""
    workload, target = maker.start.workload, maker.start.target
    place = (workload.uri, target, job, session)
    if job.recipe.kind is RecipeKind.CONTROL:
        control = measure_control(workload, target)
        return _session(
            *place,
            control.status.value,
            message=control.message,
            speedup=control.ratio,
            speedup_ci=control.interval,
            best_us=control.best_us,
            naive_us=control.naive_us,
            code_key=control.code_key,
        )
    if job.recipe.kind is RecipeKind.LIBRARY:
        try:
            timed = _library(workload, target, job.recipe.vendor)
        except ProcessDiedError as error:
            return _session(*place, Status.CRASH.value, message=str(error))
        best_us = timed.stats.lower_quartile_us if timed.stats else None
        return _session(
            *place,
            timed.status.value,
            message=timed.message or timed.version,
            speedup=timed.speedup,
            speedup_ci=timed.speedup_ci,
            best_us=best_us,
            naive_us=best_us * timed.speedup if best_us and timed.speedup else None,
        )
    try:
        program = _program(job, maker)
    except (UsageError, IllegalTransformError) as error:
        return _session(*place, Status.ILLEGAL.value, message=f"does not apply: {error}")
    evaluation = evaluate_in_full(evaluator, program, fresh=True)
    return _session(*place, evaluation.status.value, **_numbers(evaluation))


def _library(workload: Workload, target: Target, library: str) -> VendorResult:
    """A library's own process may die as often as one of a job."""
    for _ in range(ATTEMPTS - 1):
        try:
            return measure_vendor(workload, target, library)
        except ProcessDiedError:
            continue
    return measure_vendor(workload, target, library)


def _program(job: Job, maker: ProgramMaker) -> Program:
    if job.recipe.kind is not RecipeKind.DEFAULT:
        return maker.make(job.recipe, job.kind)
    made = default_program(maker.start.workload, maker.start.target)
    if made is None:
        raise UsageError("the compiler has no default schedule for it")
    return made[0]


def _numbers(evaluation: Evaluation) -> dict[str, Any]:
    measured = evaluation.measurement
    found: dict[str, Any] = {
        "message": evaluation.message,
        "ir_key": evaluation.ir_key,
        "code_key": evaluation.code_key,
    }
    if measured is not None:
        found |= {
            "speedup": measured.speedup,
            "speedup_ci": measured.speedup_ci,
            "best_us": measured.latency_us,
            "naive_us": measured.latency_us * measured.speedup,
        }
    return found


def _session(
    uri: str, target: Target, job: Job, session: int, status: str, **fields: Any
) -> Session:
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return Session(
        uri, job.recipe.digest, session, status, fingerprint(), str(target), versions(),
        protocol=PROTOCOL_VERSION, made=made, **fields,
    )  # fmt: skip


# -- other shapes ---------------------------------------------------------------------------


def other_shapes(workload: Workload) -> list[Workload]:
    """The kernel's train and holdout shapes besides this one."""
    kernel = workload.kernel
    made = [Workload.of(kernel, {**workload.shape, **s}) for s in (*kernel.train, *kernel.holdout)]
    return [other for other in dict.fromkeys(made) if other != workload]


def _shapes(
    jobs: Iterable[Job], workload: Workload, target: Target, evaluator: LocalEvaluator
) -> Mapping[str, dict[str, str]]:
    """By recipe, the verdict at each other shape; libraries and controls have none.

    Shape by shape, since inputs and references are prepared once for each.
    """
    made_by = (RecipeKind.TRANSFORMS, RecipeKind.SCHEDULE, RecipeKind.DEFAULT)
    chosen = [job for job in jobs if job.recipe.kind in made_by]
    found: dict[str, dict[str, str]] = {job.recipe.digest: {} for job in chosen}
    for other in other_shapes(workload):
        maker = ProgramMaker(other, target)
        for job in chosen:
            found[job.recipe.digest][other.uri] = _at(job, maker, evaluator)
    return found


def _at(job: Job, maker: ProgramMaker, evaluator: LocalEvaluator) -> str:
    try:
        program = _program(job, maker)
    except (UsageError, IllegalTransformError) as error:
        return f"{ShapeVerdict.NOT_PORTABLE}: {error}"
    if program.ir_key == maker.start.ir_key:
        return ShapeVerdict.PASSED.value
    try:
        check = evaluator.check(program)
    except EvaluationError as error:
        return f"{ShapeVerdict.UNJUDGED}: {error}"
    if check.status is Status.PASSED:
        return ShapeVerdict.PASSED.value
    wrong = check.status in FATAL and check.code_key  # without code it was never run
    verdict = ShapeVerdict.FAILED if wrong else ShapeVerdict.UNJUDGED
    return f"{verdict}: {check.status}: {check.message}"
