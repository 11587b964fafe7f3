"""`EvaluationRun`: the one order of an evaluation, and what becomes of everything that goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness.backend import backend
from tirgym.harness.channel import DeadlineError
from tirgym.harness.evaluation import Evaluation, Level, PhaseTimes
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import SETTLED, Context, Record, Store
from tirgym.harness.workbench import Outcome
from tirgym.harness.worker import RemoteError, Worker
from tirgym.harness.worker_process import is_out_of_memory
from tirgym.harness.workshop import Workshop

__all__ = ["Attempt", "EvaluationRun", "static_finding"]

_NOT_THE_PROGRAM = ("inputs", "lock")
"""Phases in which the candidate does not run."""
_REJECTED = (Status.WRONG_RESULT, Status.FLAKY, Status.COMPILE_ERROR)


def static_finding(program: Program, size_only: bool = False) -> str:
    """Why `program` must not even be built, in one line; "" if nothing speaks against it.

    `size_only` asks for compile bombs alone.
    """
    if program.dialect != "tensorir":
        return ""
    from tirgym.harness.static_checks import (
        STATEMENT_LIMIT,
        errors_only,
        statement_count,
        static_checks,
    )

    if size_only:
        count = statement_count(program.nest)  # type: ignore[attr-defined]
        return f"about {count} statements after unrolling" if count > STATEMENT_LIMIT else ""
    return "; ".join(str(finding) for finding in errors_only(static_checks(program)))


class Attempt:
    """One program in a worker: whatever happens there becomes an `Outcome`."""

    def __init__(self, workshop: Workshop, program: Program) -> None:
        self.workshop, self.program, self.limits = workshop, program, workshop.limits
        self.desk = workshop.desk(program.workload, program.target)
        self.phase = "build"
        self.code_key = ""
        self.build_s = 0.0

    def run(self, work: Callable[[Worker], Outcome]) -> Outcome:
        """`work` in a ready worker.

        A crash may be the late fault of an earlier program: it has to happen in a new worker too.
        Raises EvaluationError for what is not the program's doing.
        """
        while True:
            worker, new = self.workshop.worker(self.desk)
            outcome = self._once(worker, work)
            if new or outcome.status not in (Status.CRASH, Status.OUT_OF_MEMORY):
                return outcome

    def _once(self, worker: Worker, work: Callable[[Worker], Outcome]) -> Outcome:
        self.phase = "build"
        try:
            outcome = work(worker)
        except RemoteError as error:
            return self._survived(error)
        except DeadlineError:
            self._discard()
            if self.phase in _NOT_THE_PROGRAM:
                text = f"{self.phase} phase of {self.desk.workload} took too long"
                raise EvaluationError(text) from None
            text = f"{self.phase} did not end in {self.allowed(self.phase):.3g} s"
            return Outcome(Status.TIMEOUT, message=text)
        except WorkerDiedError as error:
            self._discard()
            memory = is_out_of_memory(str(error))
            status = Status.OUT_OF_MEMORY if memory else Status.CRASH
            return Outcome(status, message=f"{self.phase}: the worker died: {error}")
        except BaseException:  # Ctrl-C among them: the worker may be in the middle of anything
            self._discard()
            raise
        if outcome.tainted:
            self._discard()
        return outcome

    def _survived(self, error: RemoteError) -> Outcome:
        """An exception that the worker outlived."""
        text = f"{self.phase}: {error.message}"
        if error.kind == "memory":
            self._discard()
            return Outcome(Status.OUT_OF_MEMORY, message=text)
        if self.phase == "build":
            return Outcome(Status.COMPILE_ERROR, message=text)
        self._discard()
        if self.phase in _NOT_THE_PROGRAM:
            raise EvaluationError(text)
        return Outcome(Status.CRASH, message=text)

    def _discard(self) -> None:
        self.workshop.discard(self.desk.target)

    def build(self, worker: Worker) -> str:
        """Compile; answers the module's text and sets `code_key`."""
        text = backend(self.desk.target.backend).module_json(self.program)
        answer: tuple[str, float] = worker.call(
            "build", self.desk.key, text, timeout_s=self.limits.build_s
        )
        self.code_key, self.build_s = answer
        return text

    def load(self, worker: Worker) -> None:
        """JIT-link what was built."""
        seconds: float = worker.call(
            "load", self.desk.key, self.code_key, timeout_s=self.limits.build_s
        )
        self.build_s += seconds

    def in_phases(self, worker: Worker, operation: str, *arguments: Any) -> Any:
        """Call an operation that notes its phases, each with its own timeout."""

        def on_note(phase: str) -> float:
            self.phase = phase
            return self.allowed(phase)

        timeout_s = self.limits.prepare_s
        return worker.call(
            operation, self.desk.key, *arguments, timeout_s=timeout_s, on_note=on_note
        )

    def allowed(self, phase: str) -> float:
        """Timeout of a phase, in seconds."""
        slow_s = max(self.limits.slow_floor_s, self.limits.slowdown * self.desk.naive_s)
        return {
            "build": self.limits.build_s,
            "inputs": self.limits.prepare_s,
            "gate": self.limits.gate_s + 20 * slow_s,
            "lock": self.limits.lock_s,
            "timing": self.limits.timing_s,
        }[phase]


class EvaluationRun:
    """One evaluation: look up, check statically, build, look up again, gate and time, store."""

    def __init__(
        self,
        workshop: Workshop,
        store: Store,
        context: Context,
        program: Program,
        level: Level,
        fresh: bool,
        verify: bool,
    ) -> None:
        self.verify = verify
        self.workshop, self.store, self.context = workshop, store, context
        self.program, self.level, self.fresh = program, level, fresh
        self.started = time.perf_counter()
        self.ir_key = program.ir_key
        self.code_key = ""
        self.static_s = 0.0
        self.build_s = 0.0

    def evaluation(self) -> Evaluation:
        """The answer."""
        if not self.fresh:
            self.remember()
            known = self.store.code_key(self.context, self.ir_key)
            stored = self.stored(known or f"ir:{self.ir_key}")
            if stored is not None:
                return self.finished(stored.evaluation(self.ir_key))
        began = time.perf_counter()
        finding = static_finding(self.program, size_only=not self.verify)
        self.static_s = time.perf_counter() - began
        if finding:
            return self.finished(self.settle(Outcome(Status.ILLEGAL, message=finding)))
        attempt = Attempt(self.workshop, self.program)
        found: list[Record] = []

        def work(worker: Worker) -> Outcome:
            text = attempt.build(worker)
            if not self.fresh:
                self.store.put_code_key(self.context, self.ir_key, attempt.code_key)
                stored = self.stored(attempt.code_key)
                if stored is not None:
                    found.append(stored)
                    return Outcome(stored.status)
            attempt.load(worker)
            return self.gate_and_time(attempt, worker, text)

        outcome = attempt.run(work)
        self.code_key, self.build_s = attempt.code_key, attempt.build_s
        if found:
            return self.finished(found[0].evaluation(self.ir_key))
        return self.finished(self.settle(outcome), outcome)

    def remember(self) -> None:
        """Note how the program is made, so that models can learn from its verdict."""
        if self.store.read_only or self.store.transforms(self.context, self.ir_key) is not None:
            return
        steps = tuple(map(str, self.program.steps))
        self.store.put_transforms(self.context, self.ir_key, steps)

    def stored(self, key: str) -> Record | None:
        """The verdict on `key` that may be used again (see `LocalEvaluator`)."""
        training = self.level is Level.TRAINING
        for level in (Level.TRAINING, Level.FULL) if training else (Level.FULL, Level.TRAINING):
            record = self.store.get(self.context, key, level)
            if record is None or record.status not in SETTLED:
                continue
            if training or level is Level.FULL or record.status in _REJECTED:
                return record
        return None

    def gate_and_time(self, attempt: Attempt, worker: Worker, text: str) -> Outcome:
        """The worker's part; remembers the program as an anchor if it became one."""
        number = self.workshop.next_number()
        arguments = (attempt.code_key, self.level, number, attempt.desk.floor_us)
        outcome: Outcome = attempt.in_phases(worker, "evaluate", *arguments)
        if outcome.anchor is not None:
            anchor = replace(outcome.anchor, module_json=text)
            attempt.desk.anchors.append(anchor)
            timeout_s = self.workshop.limits.build_s
            worker.call("add_anchor", attempt.desk.key, anchor, timeout_s=timeout_s)
        return outcome

    def settle(self, outcome: Outcome) -> Evaluation:
        """Store a verdict; the answer is what the store then holds for it."""
        record = Record(
            self.context,
            self.code_key or f"ir:{self.ir_key}",
            self.level,
            outcome.status,
            " ".join(outcome.message.split())[:500],
            outcome.report,
            outcome.measurement,
            outcome.slowdown,
        )
        held = record if self.fresh else self.store.put(record)
        made = held.evaluation(self.ir_key)
        mine = held == record
        return replace(made, measurement=record.measurement) if mine else made

    def finished(self, evaluation: Evaluation, outcome: Outcome | None = None) -> Evaluation:
        """`evaluation` with the time of each phase."""
        parts: dict[str, float] = {}
        if outcome is not None:
            parts = {
                "gate_s": outcome.gate_s,
                "gate_runs_s": outcome.gate_runs_s,
                "timing_s": outcome.timing_s,
                "timed_runs_s": outcome.timed_runs_s,
                "waited_s": outcome.waited_s,
            }
        times = PhaseTimes(
            static_s=self.static_s,
            build_s=self.build_s,
            total_s=time.perf_counter() - self.started,
            **parts,
        )
        return replace(evaluation, phases=times)
