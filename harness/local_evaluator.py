"""`LocalEvaluator`: builds, checks and times programs in a worker on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tirgym import settings
from tirgym.errors import EvaluationError, InvalidValueError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.desk import Limits, context_of
from tirgym.harness.evaluation import (
    Comparison,
    Evaluation,
    GateReport,
    Level,
    WitnessReport,
)
from tirgym.harness.evaluation_run import Attempt, EvaluationRun, static_finding
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import Context, Store, open_store
from tirgym.harness.target import Target
from tirgym.harness.timing import Timer, TimingPlan
from tirgym.harness.witness import witnesses_of
from tirgym.harness.workbench import Outcome
from tirgym.harness.worker import Worker
from tirgym.harness.workshop import Workshop
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import require_reference

__all__ = ["GateCheck", "Limits", "LocalEvaluator"]


@dataclass(frozen=True, slots=True)
class GateCheck:
    """What the gate alone says about a program; never a number."""

    status: Status
    """PASSED here means right, not timed"""
    code_key: str
    report: GateReport | None
    message: str = ""


class LocalEvaluator:
    """An `Evaluator` with one warm worker process for each thread count, and a spare.

        with LocalEvaluator(target, store=":memory:") as evaluator:
            evaluation = evaluator.evaluate(program)

    `target` None takes each program's own. `store` is a path, ":memory:", a `Store`, or None for
    the user's store. `seed` is public and mixed with a secret. `bitwise` also demands the
    unscheduled program's bits. Without `static_checks` only compile bombs are refused before the
    build, to study what gate and isolation catch alone; verdicts are kept apart. `timer`, `plans` and `floor_us` (µs below which a time is SUSPECT)
    replace the defaults.

    Reuse: identical machine code is never measured twice on one machine, and identical IR never
    compiled twice. A stored PASSED, WRONG_RESULT, FLAKY, TOO_SLOW or COMPILE_ERROR verdict of the
    asked level is the answer, with `reused` in its measurement; TRAINING also takes a FULL verdict,
    and FULL takes a TRAINING rejection, since one counterexample is enough. FULL never takes a
    TRAINING pass. NOISY, SUSPECT, TIMEOUT, CRASH and OUT_OF_MEMORY are tried again.

    Thread-safe, one evaluation at a time. Not usable across a fork: make one in each process.
    """

    def __init__(
        self,
        target: Target | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        bitwise: bool = False,
        static_checks: bool = True,
        timer: Timer | None = None,
        plans: dict[Level, TimingPlan] | None = None,
        floor_us: Callable[[Workload, Target], float] | None = None,
    ) -> None:
        self.target, self.limits = target, limits or Limits()
        self.store = open_store(settings.store_path() if store is None else store)
        self._owns_store = not isinstance(store, Store)
        self._bitwise, self._static_checks = bitwise, static_checks
        self._workshop = Workshop(self.limits, seed, bitwise, timer, plans, floor_us)
        self._lock = threading.RLock()
        self._closed = False

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """Judge and time one program. Never raises for what the program does.

        `fresh` measures anew whatever is stored, and stores nothing: for a number that does not
        depend on the choice that stored ones led to.

        Raises UsageError for a program on another target or a kernel without a reference, and
        EvaluationError when the workload itself, the store or the machinery fails.
        """
        with self._lock:
            self._admit(program)
            context = self._context(program.workload, program.target)
            run = EvaluationRun(
                self._workshop, self.store, context, program, level, fresh, self._static_checks
            )
            return run.evaluation()

    def baseline(
        self, workload: Workload, target: Target | None = None, *, fresh: bool = False
    ) -> Evaluation:
        """The unscheduled program of `workload`, measured in full; its speedup is exactly 1."""
        target = target or self.target
        if target is None:
            raise InvalidValueError("target", None, "a target, of the evaluator or of this call")
        start = backend(target.backend).start(workload, target)
        return self.evaluate(start, Level.FULL, fresh=fresh)

    def compare(self, first: Program, second: Program) -> Comparison:
        """Paired A/B of two programs of one workload: both judged in full, then interleaved.

        Raises TargetMismatchError unless both are for the same workload and target.
        """
        if (first.workload, first.target) != (second.workload, second.target):
            raise TargetMismatchError(
                f"cannot compare {first.workload} on {first.target} with "
                f"{second.workload} on {second.target}: workload and target must be equal"
            )
        with self._lock:
            one, two = (self.evaluate(p, Level.FULL) for p in (first, second))
            if not (one.passed and two.passed):
                return Comparison(one, two)
            if one.code_key == two.code_key:
                return Comparison(one, two, 1.0, (1.0, 1.0), same_code=True)
            attempt = Attempt(self._workshop, first)
            module_json = backend(first.target.backend).module_json
            paired: list[tuple[float, tuple[float, float], bool]] = []

            def work(worker: Worker) -> Outcome:
                texts = (module_json(first), module_json(second))
                outcome, *found = attempt.in_phases(worker, "compare", *texts)
                paired[:] = [(found[0], found[1], found[2])]
                return outcome  # type: ignore[no-any-return]

            outcome = attempt.run(work)
            if outcome.status is not Status.PASSED:
                raise EvaluationError(f"comparison failed: {outcome.status}: {outcome.message}")
            ratio, interval, noisy = paired[0]
            return Comparison(one, two, ratio, interval, noisy=noisy)

    def check(self, program: Program, level: Level = Level.FULL) -> GateCheck:
        """The gate alone, without static checks, timing or store: for studies of the gate.

        What expands to too much code is still refused.
        """
        with self._lock:
            self._admit(program)
            finding = static_finding(program, size_only=True)
            if finding:
                return GateCheck(Status.ILLEGAL, "", None, finding)
            attempt, outcome = self._gate(program, level, [])
            return GateCheck(outcome.status, attempt.code_key, outcome.report, outcome.message)

    def second_witness(self, program: Program, level: Level = Level.FULL) -> WitnessReport:
        """Settle a rejection: the same IR built plainly, on the inputs that the program failed on.

        The witnesses are the IR with every loop serial, and the IR as it is for a generic CPU.
        """
        with self._lock:
            self._admit(program)
            failures: list[tuple[str, str]] = []
            variants = witnesses_of(program)
            _, outcome = self._gate(program, level, failures, variants)
            if outcome.status is Status.PASSED:
                return WitnessReport("", ())
            return WitnessReport(f"{outcome.status}: {outcome.message}", tuple(failures))

    def close(self) -> None:
        """End the worker processes; the evaluator cannot be used afterwards."""
        with self._lock:
            self._closed = True
            self._workshop.close()
            if self._owns_store:
                self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _gate(
        self,
        program: Program,
        level: Level,
        failures: list[tuple[str, str]],
        variants: tuple[tuple[str, str, Target], ...] = (),
    ) -> tuple[Attempt, Outcome]:
        """Build and gate `program`; if it fails, fill `failures` from `variants`."""
        attempt = Attempt(self._workshop, program)

        def work(worker: Worker) -> Outcome:
            attempt.build(worker)
            attempt.load(worker)
            number = self._workshop.next_number()
            outcome: Outcome = attempt.in_phases(worker, "check", attempt.code_key, level, number)
            if outcome.status in (Status.WRONG_RESULT, Status.FLAKY) and variants:
                failures[:] = attempt.in_phases(worker, "witness", variants)
            return outcome

        return attempt, attempt.run(work)

    def _admit(self, program: Program) -> None:
        if self._closed:
            raise EvaluationError("the evaluator is closed; make a new one")
        if self.target is not None and program.target != self.target:
            raise InvalidValueError(
                "target of the program", str(program.target), f"{self.target}, the evaluator's"
            )
        require_reference(program.workload.kernel)

    def _context(self, workload: Workload, target: Target) -> Context:
        context = context_of(workload, target)
        mode = ("#bitwise" if self._bitwise else "") + ("" if self._static_checks else "#unchecked")
        return replace(context, workload=context.workload + mode) if mode else context
