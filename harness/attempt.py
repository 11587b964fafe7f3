"""`Attempt`: one program in a worker; whatever happens there becomes an `Outcome`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tirgym.errors import EvaluationError, WorkerDiedError
from tirgym.harness.backend import backend
from tirgym.harness.channel import DeadlineError
from tirgym.harness.lane import Lane
from tirgym.harness.outcome import Outcome
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.steps import Steps
from tirgym.harness.worker import RemoteError, Worker
from tirgym.harness.worker_process import is_out_of_memory
from tirgym.harness.workshop import Workshop

__all__ = ["Attempt"]

_NOT_THE_PROGRAM = ("inputs", "lock")
"""Phases in which the candidate does not run."""


class Attempt:
    """Runs steps in a worker and turns their faults into verdicts."""

    def __init__(self, workshop: Workshop, program: Program) -> None:
        self.workshop, self.program, self.limits = workshop, program, workshop.limits
        self.desk = workshop.desk(program.workload, program.target)
        self.phase = "build"
        self.code_key = ""
        self.build_s = 0.0

    def run(self, work: Callable[[Lane, Worker], Steps[Outcome]]) -> Steps[Outcome]:
        """`work` in a ready worker of a lane that nobody else uses meanwhile.

        A crash may be the late fault of an earlier program: it has to happen in a new worker too.
        Raises EvaluationError for what is not the program's doing.
        """
        with self.workshop.lane(self.desk.target) as self.lane:
            while True:
                worker, new = yield from self.lane.worker(self.desk)
                outcome = yield from self._once(worker, work)
                if new or outcome.status not in (Status.CRASH, Status.OUT_OF_MEMORY):
                    return outcome

    def _once(
        self, worker: Worker, work: Callable[[Lane, Worker], Steps[Outcome]]
    ) -> Steps[Outcome]:
        self.phase = "build"
        try:
            outcome = yield from work(self.lane, worker)
        except RemoteError as error:
            return self._survived(error)
        except DeadlineError:
            self.lane.discard()
            if self.phase in _NOT_THE_PROGRAM:
                text = f"{self.phase} phase of {self.desk.workload} took too long"
                raise EvaluationError(text) from None
            text = f"{self.phase} did not end in {self.allowed(self.phase):.3g} s"
            return Outcome(Status.TIMEOUT, message=text)
        except WorkerDiedError as error:
            self.lane.discard()
            memory = is_out_of_memory(str(error))
            status = Status.OUT_OF_MEMORY if memory else Status.CRASH
            return Outcome(status, message=f"{self.phase}: the worker died: {error}")
        except BaseException:  # Ctrl-C among them: the worker may be in the middle of anything
            self.lane.discard()
            raise
        if outcome.tainted:
            self.lane.discard()
        return outcome

    def _survived(self, error: RemoteError) -> Outcome:
        """An exception that the worker outlived."""
        text = f"{self.phase}: {error.message}"
        if error.kind == "memory":
            self.lane.discard()
            return Outcome(Status.OUT_OF_MEMORY, message=text)
        if self.phase == "build":
            return Outcome(Status.COMPILE_ERROR, message=text)
        self.lane.discard()
        if self.phase in _NOT_THE_PROGRAM:
            raise EvaluationError(text)
        return Outcome(Status.CRASH, message=text)

    def build(self, worker: Worker) -> Steps[str]:
        """Compile; answers the module's text and sets `code_key`."""
        text = backend(self.desk.target.backend).module_json(self.program)
        answer: tuple[str, float] = yield from self.lane.call(
            worker, "build", self.desk.key, text, timeout_s=self.limits.build_s
        )
        self.code_key, self.build_s = answer
        return text

    def load(self, worker: Worker) -> Steps[None]:
        """JIT-link what was built."""
        seconds: float = yield from self.lane.call(
            worker, "load", self.desk.key, self.code_key, timeout_s=self.limits.build_s
        )
        self.build_s += seconds

    def in_phases(self, worker: Worker, operation: str, *arguments: Any) -> Steps[Any]:
        """Call an operation that notes its phases, each with its own timeout."""

        def on_note(phase: str) -> float:
            self.phase = phase
            return self.allowed(phase)

        answer = yield from self.lane.call(
            worker,
            operation,
            self.desk.key,
            *arguments,
            timeout_s=self.limits.prepare_s,
            on_note=on_note,
        )
        return answer

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
