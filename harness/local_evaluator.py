"""`LocalEvaluator`: builds, checks and times programs in a worker on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from tirgym import settings
from tirgym.errors import EvaluationError, InvalidValueError, TargetMismatchError
from tirgym.harness.attempt import Attempt
from tirgym.harness.backend import backend
from tirgym.harness.closing import Closing
from tirgym.harness.desk import Limits, context_of
from tirgym.harness.evaluation import (
    Comparison,
    Evaluation,
    GateReport,
    Level,
    WitnessReport,
)
from tirgym.harness.evaluation_run import EvaluationRun, static_finding
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.lane import Lane
from tirgym.harness.outcome import Outcome
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.steps import Steps, finish, in_order
from tirgym.harness.store import Context, Store, open_store
from tirgym.harness.target import Target
from tirgym.harness.timing import Timer, TimingPlan
from tirgym.harness.witness import witnesses_of
from tirgym.harness.worker import Worker
from tirgym.harness.workshop import Workshop, free_cores
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


class LocalEvaluator(Closing, Evaluator):
    """An `Evaluator` with a warm worker process for each thread count, and a spare.

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

    `evaluate_many` has two workers: while one times a program, the other builds and gates the next,
    if there is a core for it and unless `pipeline` is off. Timings never overlap, and programs are
    timed in order. At level FULL nothing else runs.

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
        pipeline: bool = True,
    ) -> None:
        self.target, self.limits = target, limits or Limits()
        self.store = open_store(settings.store_path() if store is None else store)
        self._owns_store = not isinstance(store, Store)
        self._bitwise, self._static_checks, self._pipeline = bitwise, static_checks, pipeline
        self._begun: list[EvaluationRun] = []
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
            if level is Level.FULL:
                self._workshop.rest()
            return finish(self._evaluation(program, level, fresh))

    def evaluate_many(
        self,
        programs: Iterable[Program],
        level: Level = Level.TRAINING,
        *,
        fresh: bool = False,
    ) -> Generator[Evaluation, None, None]:
        """The answers of `evaluate`, in order; the next program is built while one is timed.

        What is raised for a program is raised when its turn comes. Timeouts run while an answer is
        waited for, here or in another call.
        """
        for target, group in groupby(programs, key=lambda program: program.target):
            overlap = self._pipeline and level is Level.TRAINING and free_cores(target) > 0
            starts = (self._evaluation(program, level, fresh) for program in group)
            answers = in_order(starts, int(overlap))
            try:
                while (evaluation := self._next(answers, level)) is not None:
                    yield evaluation
            finally:
                with self._lock:
                    answers.close()

    def _next(self, answers: Iterator[Evaluation], level: Level) -> Evaluation | None:
        with self._lock:
            self._require_open()
            if level is Level.FULL:
                self._workshop.rest()
            return next(answers, None)

    def _evaluation(self, program: Program, level: Level, fresh: bool) -> Steps[Evaluation]:
        self._admit(program)
        run = EvaluationRun(
            self._workshop,
            self.store,
            self._context(program.workload, program.target),
            program,
            level,
            fresh,
            self._static_checks,
            self._begun,
        )
        self._begun.append(run)
        try:
            evaluation = yield from run.steps()
        finally:
            self._begun.remove(run)
        return evaluation

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
            self._workshop.rest()
            attempt = Attempt(self._workshop, first)
            module_json = backend(first.target.backend).module_json
            paired: list[tuple[float, tuple[float, float], bool]] = []

            def work(lane: Lane, worker: Worker) -> Steps[Outcome]:
                texts = (module_json(first), module_json(second))
                outcome, *found = yield from attempt.in_phases(worker, "compare", *texts)
                paired[:] = [(found[0], found[1], found[2])]
                return outcome  # type: ignore[no-any-return]

            outcome = finish(attempt.run(work))
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

    def renew(self) -> None:
        """Judge what comes next in a new worker: another process, with memory of its own.

        Verdicts, the store and what is known of the unscheduled program stay.
        """
        with self._lock:
            self._require_open()
            self._workshop.renew()

    def close(self) -> None:
        """End the worker processes; the evaluator cannot be used afterwards."""
        with self._lock:
            self._closed = True
            self._workshop.close()
            if self._owns_store:
                self.store.close()

    def _gate(
        self,
        program: Program,
        level: Level,
        failures: list[tuple[str, str]],
        variants: tuple[tuple[str, str, Target], ...] = (),
    ) -> tuple[Attempt, Outcome]:
        """Build and gate `program`; if it fails, fill `failures` from `variants`."""
        attempt = Attempt(self._workshop, program)

        def work(lane: Lane, worker: Worker) -> Steps[Outcome]:
            yield from attempt.build(worker)
            yield from attempt.load(worker)
            arguments = (attempt.code_key, level, self._workshop.next_number())
            outcome: Outcome = yield from attempt.in_phases(worker, "check", *arguments)
            if outcome.status in (Status.WRONG_RESULT, Status.FLAKY) and variants:
                failures[:] = yield from attempt.in_phases(worker, "witness", variants)
            return outcome

        return attempt, finish(attempt.run(work))

    def _require_open(self) -> None:
        if self._closed:
            raise EvaluationError("the evaluator is closed; make a new one")

    def _admit(self, program: Program) -> None:
        self._require_open()
        if self.target is not None and program.target != self.target:
            raise InvalidValueError(
                "target of the program", str(program.target), f"{self.target}, the evaluator's"
            )
        require_reference(program.workload.kernel)

    def _context(self, workload: Workload, target: Target) -> Context:
        context = context_of(workload, target)
        mode = ("#bitwise" if self._bitwise else "") + ("" if self._static_checks else "#unchecked")
        return replace(context, workload=context.workload + mode) if mode else context
