"""`LocalEvaluator`: builds, checks and times programs in a worker on this machine."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tirgym import settings
from tirgym.errors import EvaluationError, InvalidValueError, WorkerDiedError
from tirgym.harness.backend import backend
from tirgym.harness.channel import DeadlineError
from tirgym.harness.evaluation import Evaluation, Level, PhaseTimes
from tirgym.harness.hardware import compiler_versions, fingerprint, roofline_floor_us
from tirgym.harness.portable import callables_of, kernel_digest, to_bytes
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import SETTLED, Context, Record, Store, open_store
from tirgym.harness.target import Target
from tirgym.harness.timing import PLANS, Timer, TimingPlan, WallTimer
from tirgym.harness.workbench import Anchor, Outcome, Rules
from tirgym.harness.worker import RemoteError, Worker, WorkerLimits, WorkerPool
from tirgym.harness.worker_process import is_out_of_memory
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import bytes_of, flops_of, require_reference
from tirgym.kernels_suite.registry import LOCAL_SUITE

__all__ = ["Limits", "LocalEvaluator", "context_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one evaluation. The worker is killed when a phase takes longer."""

    build_s: float = 20.0
    gate_s: float = 10.0
    """beyond what the slowdown limit allows the gate's runs to take"""
    timing_s: float = 120.0
    prepare_s: float = 300.0
    """naive build, references and unscheduled outputs: not the candidate's time"""
    lock_s: float = 1800.0
    """for the timings of other processes on this machine"""
    memory_bytes: int | None = 4 << 30
    slowdown: float = 20.0
    """TOO_SLOW beyond this multiple of the naive time …"""
    slow_floor_s: float = 5e-3
    """… and this time"""


class LocalEvaluator:
    """An `Evaluator` with one warm worker process for each thread count, and a spare.

        with LocalEvaluator(target, store=":memory:") as evaluator:
            evaluation = evaluator.evaluate(program)

    `target` None takes each program's own. `store` is a path, ":memory:", a `Store`, or None for
    the user's store. `seed` is the public seed that is mixed with a secret one.

    Reuse: identical machine code is never measured twice on one machine, and identical IR never
    compiled twice. A stored PASSED, WRONG_RESULT, FLAKY, TOO_SLOW or COMPILE_ERROR verdict of the
    asked level is the answer, with `reused` in its measurement; TRAINING also takes a FULL verdict,
    and FULL takes a TRAINING rejection, since one counterexample is enough. FULL never takes a
    TRAINING pass. NOISY, SUSPECT, TIMEOUT, CRASH and OUT_OF_MEMORY are tried again.

    Thread-safe (one evaluation at a time); not usable across a fork.
    """

    def __init__(
        self,
        target: Target | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        bitwise: bool = False,
        timer: Timer | None = None,
        plans: dict[Level, TimingPlan] | None = None,
        floor_us: Callable[[Workload, Target], float] | None = None,
    ) -> None:
        self.target, self.limits = target, limits or Limits()
        self.store = open_store(settings.store_path() if store is None else store)
        self._owns_store = not isinstance(store, Store)
        self._floor_us = floor_us or roofline_floor
        timer = timer or WallTimer()
        lock = Path(tempfile.gettempdir()) / f"tirgym-timing-{os.getuid()}.lock"
        rules = Rules(
            secrets.token_bytes(32),
            seed,
            plans or PLANS,
            timer,
            str(lock),
            self.limits.slowdown,
            self.limits.slow_floor_s,
            bitwise,
        )
        self._bitwise = bitwise
        self._rules = to_bytes(rules, timer)
        self._lock = threading.RLock()
        self._pools: dict[int, WorkerPool] = {}
        self._desks: dict[tuple[Workload, Target], _Desk] = {}
        self._number = 0
        self._closed = False

    # --- public -----------------------------------------------------------------------------

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """Judge and time one program. Never raises for what the program does.

        `fresh` measures anew whatever is stored, and does not store the answer: for a number that
        is independent of the choice that was made by stored ones.

        Raises UsageError for a program on another target or a kernel without a reference, and
        EvaluationError when the workload itself, the store or the machinery fails.
        """
        with self._lock:
            self._require_open(program.target)
            require_reference(program.workload.kernel)
            run = _Run(self, program, level, fresh)
            return run.evaluation()

    def baseline(self, workload: Workload, target: Target | None = None) -> Evaluation:
        """The unscheduled program of `workload`, measured in full."""
        target = target or self.target
        if target is None:
            raise InvalidValueError("target", None, "a target, of the evaluator or of this call")
        return self.evaluate(backend(target.backend).start(workload, target), Level.FULL)

    def close(self) -> None:
        """End the worker processes; the evaluator cannot be used afterwards."""
        self._closed = True
        with self._lock:
            for threads in sorted(self._pools):
                self._pools[threads].close()
            self._pools.clear()
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

    # --- workers ----------------------------------------------------------------------------

    def _require_open(self, target: Target) -> None:
        if self._closed:
            raise EvaluationError("the evaluator is closed; make a new one")
        if self.target is not None and target != self.target:
            raise InvalidValueError("target of the program", str(target), str(self.target))

    def _pool(self, threads: int) -> WorkerPool:
        if threads not in self._pools:
            limits = WorkerLimits(threads, self.limits.memory_bytes)
            self._pools[threads] = WorkerPool(limits)
        return self._pools[threads]

    def _desk(self, workload: Workload, target: Target) -> _Desk:
        key = (workload, target)
        if key not in self._desks:
            self._desks[key] = _Desk(str(len(self._desks)), workload, target, self._floor_us)
        return self._desks[key]

    def _ready_worker(self, desk: _Desk) -> Worker:
        """A worker that has a workbench for `desk`; EvaluationError if the workload cannot get one."""
        pool = self._pool(desk.target.num_threads)
        worker, fresh = pool.worker()
        if fresh:
            for other in self._desks.values():
                if other.target.num_threads == desk.target.num_threads:
                    other.prepared = False
        if not desk.prepared:
            try:
                held, desk.naive_key, desk.naive_s = worker.call(
                    "prepare",
                    desk.key,
                    desk.workload_bytes,
                    desk.naive_json,
                    desk.target,
                    self._rules,
                    desk.anchors,
                    timeout_s=self.limits.prepare_s,
                )
            except (RemoteError, DeadlineError, WorkerDiedError) as error:
                pool.discard()
                text = getattr(error, "message", str(error))
                raise EvaluationError(f"cannot prepare {desk.workload}: {text}") from None
            for other in self._desks.values():
                if other.target.num_threads == desk.target.num_threads:
                    other.prepared = other.key in held
        return worker

    def _discard_worker(self, target: Target) -> None:
        self._pool(target.num_threads).discard()


def context_of(workload: Workload, target: Target) -> Context:
    """Under what a verdict on this machine is stored."""
    kernel = workload.kernel
    uri = workload.uri
    if kernel.suite == LOCAL_SUITE:
        uri = f"{uri}#{kernel_digest(kernel)}"
    versions = " ".join(f"{name}={text}" for name, text in compiler_versions().items())
    return Context(uri, target, versions, fingerprint())


def roofline_floor(workload: Workload, target: Target) -> float:
    """µs that no correct run can be below."""
    return roofline_floor_us(flops_of(workload), bytes_of(workload), target, workload.kernel.dtype)


class _Desk:
    """The parent's side of one workbench."""

    def __init__(
        self,
        key: str,
        workload: Workload,
        target: Target,
        floor_us: Callable[[Workload, Target], float],
    ) -> None:
        self.key, self.workload, self.target = key, workload, target
        start = backend(target.backend).start(workload, target)
        self.naive_json = backend(target.backend).module_json(start)
        self.workload_bytes = to_bytes(workload, *callables_of(workload.kernel).values())
        self.floor_us = floor_us(workload, target)
        self.anchors: list[Anchor] = []
        self.prepared = False
        self.naive_key, self.naive_s = "", 0.0


class _Run:
    """One evaluation from start to end."""

    def __init__(
        self, evaluator: LocalEvaluator, program: Program, level: Level, fresh: bool
    ) -> None:
        self.evaluator, self.program, self.level, self.fresh = evaluator, program, level, fresh
        self.limits, self.store = evaluator.limits, evaluator.store
        self.started = time.perf_counter()
        self.context = context_of(program.workload, program.target)
        if evaluator._bitwise:
            self.context = replace(self.context, workload=f"{self.context.workload}#bitwise")
        self.ir_key = program.ir_key
        self.code_key = ""
        self.phase = ""
        self.times = PhaseTimes()

    def evaluation(self) -> Evaluation:
        """Look up, check statically, build, look up again, gate and time; store."""
        known = self.store.code_key(self.context, self.ir_key)
        stored = self.stored(known or f"ir:{self.ir_key}")
        if stored is not None:
            return self.timed_answer(stored)
        finding = self.static_finding()
        self.spend(static_s=time.perf_counter() - self.started)
        if finding:
            return self.answer(Status.ILLEGAL, message=finding)
        # A crash may be the late fault of the program before: it must happen in a new worker too.
        outcome = self.attempt()
        if isinstance(outcome, Evaluation) and outcome.status is Status.CRASH:
            outcome = self.attempt()
        return outcome if isinstance(outcome, Evaluation) else self.from_outcome(outcome)

    def stored(self, key: str) -> Evaluation | None:
        """The reusable verdict on `key`."""
        if self.fresh:
            return None
        order = (Level.TRAINING, Level.FULL) if self.level is Level.TRAINING else tuple(Level)[::-1]
        for level in order:
            record = self.store.get(self.context, key, level)
            if record is None or record.status not in SETTLED:
                continue
            rejected = record.status in (Status.WRONG_RESULT, Status.FLAKY, Status.COMPILE_ERROR)
            if self.level is Level.TRAINING or level is Level.FULL or rejected:
                return record.evaluation(self.ir_key)
        return None

    def static_finding(self) -> str:
        """Why the program must not even be built; "" if nothing speaks against it."""
        from tirgym.harness.tensorir.expansion import MAX_STATEMENTS, expanded_statements

        if self.program.dialect == "tensorir":
            size = expanded_statements(self.program.mod)  # type: ignore[attr-defined]
            if size > MAX_STATEMENTS:
                return f"unrolls to {size} statements, more than {MAX_STATEMENTS}"
        return ""

    def attempt(self) -> Outcome | Evaluation:
        """Build, gate and time in the worker; what goes wrong there becomes a status."""
        evaluator, target = self.evaluator, self.program.target
        desk = evaluator._desk(self.program.workload, target)
        worker = evaluator._ready_worker(desk)
        try:
            return self.in_worker(worker, desk)
        except RemoteError as error:
            return self.survived(error)
        except DeadlineError:
            evaluator._discard_worker(target)
            if self.phase in ("inputs", "lock"):
                raise EvaluationError(f"{self.phase} of {desk.workload} took too long") from None
            text = f"{self.phase} did not end in {self.allowed(self.phase, desk):.3g} s"
            return self.answer(Status.TIMEOUT, message=text)
        except WorkerDiedError as error:
            evaluator._discard_worker(target)
            memory = is_out_of_memory(str(error))
            status = Status.OUT_OF_MEMORY if memory else Status.CRASH
            return self.answer(status, message=f"{self.phase}: the worker died: {error}")
        except BaseException:
            evaluator._discard_worker(target)
            raise

    def in_worker(self, worker: Worker, desk: _Desk) -> Outcome | Evaluation:
        """The normal way through."""
        self.phase = "build"
        text = backend(desk.target.backend).module_json(self.program)
        code_key, build_s = worker.call("build", desk.key, text, timeout_s=self.limits.build_s)
        self.spend(build_s=build_s)
        self.code_key = code_key
        if not self.fresh:
            self.store.put_code_key(self.context, self.ir_key, code_key)
            stored = self.stored(code_key)
            if stored is not None:
                return self.timed_answer(stored)
        load_s = worker.call("load", desk.key, code_key, timeout_s=self.limits.build_s)
        self.spend(build_s=load_s)

        def on_note(phase: str) -> float:
            self.phase = phase
            return self.allowed(phase, desk)

        number, self.evaluator._number = self.evaluator._number, self.evaluator._number + 1
        outcome: Outcome = worker.call(
            "evaluate",
            desk.key,
            code_key,
            self.level,
            number,
            desk.floor_us,
            timeout_s=self.limits.prepare_s,
            on_note=on_note,
        )
        if outcome.anchor is not None:
            anchor = replace(outcome.anchor, module_json=text)
            desk.anchors.append(anchor)
            worker.call("add_anchor", desk.key, anchor, timeout_s=self.limits.build_s)
        if outcome.tainted:
            self.evaluator._discard_worker(desk.target)
        return outcome

    def allowed(self, phase: str, desk: _Desk) -> float:
        """Timeout of a phase, in seconds."""
        slow_s = max(self.limits.slow_floor_s, self.limits.slowdown * desk.naive_s)
        return {
            "build": self.limits.build_s,
            "inputs": self.limits.prepare_s,
            "gate": self.limits.gate_s + 20 * slow_s,
            "lock": self.limits.lock_s,
            "timing": self.limits.timing_s,
        }[phase]

    def survived(self, error: RemoteError) -> Evaluation:
        """An exception that the worker outlived."""
        text = f"{self.phase}: {error.message}"
        if error.kind == "memory":
            self.evaluator._discard_worker(self.program.target)
            return self.answer(Status.OUT_OF_MEMORY, message=text)
        if self.phase == "build":
            return self.answer(Status.COMPILE_ERROR, message=text)
        if self.phase == "inputs":
            raise EvaluationError(text)
        self.evaluator._discard_worker(self.program.target)
        return self.answer(Status.CRASH, message=text)

    def from_outcome(self, outcome: Outcome) -> Evaluation:
        """The worker's verdict as an answer, stored."""
        self.spend(
            gate_s=outcome.gate_s,
            gate_runs_s=outcome.gate_runs_s,
            timing_s=outcome.timing_s,
            timed_runs_s=outcome.timed_runs_s,
            waited_s=outcome.waited_s,
        )
        return self.answer(
            outcome.status,
            message=outcome.message,
            outcome=outcome,
        )

    def answer(
        self, status: Status, message: str = "", outcome: Outcome | None = None
    ) -> Evaluation:
        """Store a verdict and answer what the store now holds for it."""
        record = Record(
            self.context,
            self.code_key or f"ir:{self.ir_key}",
            self.level,
            status,
            " ".join(message.split())[:500],
            None if outcome is None else outcome.report,
            None if outcome is None else outcome.measurement,
            None if outcome is None else outcome.slowdown,
        )
        held = record if self.fresh or status is Status.ILLEGAL else self.store.put(record)
        made = held.evaluation(self.ir_key)
        if held is record or held == record:
            made = replace(made, measurement=record.measurement)  # measured now, not reused
        return self.timed_answer(made)

    def timed_answer(self, evaluation: Evaluation) -> Evaluation:
        self.spend(total_s=time.perf_counter() - self.started - self.times.total_s)
        return replace(evaluation, phases=self.times)

    def spend(self, **seconds: float) -> None:
        """Add to the phases' times."""
        added = {name: getattr(self.times, name) + value for name, value in seconds.items()}
        self.times = replace(self.times, **added)
