"""`CompileHarness`: one kernel, its current program, and everything that can be done with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tirgym.errors import IllegalTransformError, InvalidValueError, UnknownNameError, UsageError
from tirgym.harness.agent import Agent, Budget, Candidate
from tirgym.harness.backend import backend as load_backend
from tirgym.harness.closing import Closing
from tirgym.harness.cost import CostModel, static_cost_model
from tirgym.harness.decision_log import DecisionLog, Event
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator, make_evaluator
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Trial
from tirgym.harness.status import FATAL, Status
from tirgym.harness.trace import Trace, TraceResult
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.transforms.base import Transform
from tirgym.harness.verification import Verdict, verify_best
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Array, Kernel, Workload

__all__ = ["CompileHarness"]

ROLLS_BACK = FATAL | {Status.ILLEGAL, Status.COMPILE_ERROR, Status.INCOMPLETE}
"""Verdicts that send the harness back to the newest program that passed. Programs that are right
but slow, noisy or suspiciously fast stay: a half-way state of a good schedule can be slow."""


class CompileHarness(Closing):
    """Load a kernel, look at its IR, transform it, measure it, go back, and let agents search.

        with CompileHarness() as harness:
            harness.load_ir("matmul")
            harness.apply_transform("Split(loop=1, factor=8)")
            print(harness.get_ir_level("asm"), harness.compile_and_benchmark().speedup)

    `arch` None is this machine's. `store` is a path or store of measurements, passed on to the
    evaluator; an `evaluator` of the caller's is used instead of a new one and is not closed here.
    Use it as a context manager, or call `close`: it may hold a worker process.
    """

    def __init__(
        self,
        backend: str = "llvm",
        arch: str | None = None,
        num_threads: int = 1,
        *,
        store: Any = None,
        evaluator: Evaluator | None = None,
        vocabulary: Vocabulary | None = None,
        cost: CostModel | None = None,
    ) -> None:
        self.backend = load_backend(backend)
        self.target = self.backend.target(arch, num_threads)
        self.vocabulary = vocabulary or default_vocabulary(backend)
        self._store, self._evaluator, self._owns_evaluator = store, evaluator, evaluator is None
        self._cost = cost
        self._start: Program | None = None
        self._program: Program | None = None
        self._good: Program | None = None
        self._snapshots: dict[str, Program] = {}
        self._events = DecisionLog(lambda: self.cost)

    # -- what is loaded ---------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The current program."""
        return self._loaded(self._program)

    @property
    def start(self) -> Program:
        """The unscheduled program."""
        return self._loaded(self._start)

    @property
    def history(self) -> list[Event]:
        """The decision log."""
        return self._events.events

    @property
    def cost(self) -> CostModel:
        """The static cost model that profiles programs and that agents rank with."""
        if self._cost is None:
            self._cost = static_cost_model(self.target.backend)
        return self._cost

    @property
    def evaluator(self) -> Evaluator:
        """What judges and times programs; made when it is first needed."""
        if self._evaluator is None:
            self._evaluator = make_evaluator(self.target.backend, self._store)
        return self._evaluator

    def load_ir(
        self,
        kernel: Workload | Kernel | str | Any,
        reference: Callable[..., Array | tuple[Array, ...]] | None = None,
        *,
        name: str = "kernel",
        num_outputs: int = 1,
    ) -> Program:
        """Load `kernel` and make its unscheduled program the current one.

        `kernel` is a workload, a kernel (at its first train shape), the name, URI or "file.py:name"
        of one, or a PrimFunc or IRModule with one function. IR that comes without a kernel needs
        `reference`, independent NumPy in float64, and `num_outputs`, the number of its last
        parameters that are outputs. Snapshots of the kernel before are dropped.
        """
        began = time.perf_counter()
        workload = _workload(kernel, reference, name, num_outputs)
        program = self.backend.start(workload, self.target)
        self._start = self._program = self._good = program
        self._snapshots.clear()
        self._log("load", workload.uri, "ok", began)
        return program

    # -- look, transform, go back -----------------------------------------------------------

    def get_ir_level(self, level: str = "tir") -> str:
        """The current program as text at one of the backend's levels."""
        return self.backend.ir_level(self.program, level)

    def legal_transforms(self) -> list[Transform]:
        """The transforms of the vocabulary that are legal on the current program, in its order."""
        mask = self.program.legal_mask(self.vocabulary)
        return [self.vocabulary[int(action)] for action in np.flatnonzero(mask)]

    def apply_transform(self, transform: Transform | str) -> Program:
        """Apply `transform`, a value or its text; raises IllegalTransformError and stays put."""
        began = time.perf_counter()
        before = self.program
        if isinstance(transform, str):
            transform = parse_transform(transform)
        try:
            self._program = before.apply(transform)
        except IllegalTransformError as error:
            self._log("transform", str(transform), "illegal", began, message=str(error))
            raise
        self._log("transform", str(transform), "ok", began, before=before)
        return self.program

    def snapshot(self) -> str:
        """Remember the current program; free, since programs never change. Answers an id."""
        began = time.perf_counter()
        name = f"s{len(self._snapshots)}"
        self._snapshots[name] = self.program
        self._log("snapshot", name, "ok", began)
        return name

    def rollback(self, snapshot: str | None = None) -> Program:
        """Make a snapshot the current program again; without one, the unscheduled program."""
        began = time.perf_counter()
        before = self.program
        if snapshot is not None and snapshot not in self._snapshots:
            raise UnknownNameError("snapshot", snapshot, self._snapshots or ["none was taken"])
        self._program = self.start if snapshot is None else self._snapshots[snapshot]
        self._log("rollback", snapshot or "start", "ok", began, before=before)
        return self.program

    # -- measure and search -----------------------------------------------------------------

    def compile_and_benchmark(self, level: Level = Level.FULL) -> Evaluation:
        """Build, check and time the current program.

        When it does not hold, the harness goes back to the newest program that passed, or to the
        unscheduled one. Ctrl-C ends the worker, keeps program and history, and goes on upwards.
        """
        began = time.perf_counter()
        program = self.program
        try:
            evaluation = self.evaluator.evaluate(program, level)
        except KeyboardInterrupt:
            self._log("evaluate", level.value, "interrupted", began)
            raise
        if evaluation.passed:
            self._good = program
        elif evaluation.status in ROLLS_BACK:
            self._program = self._good
        self._log("evaluate", level.value, evaluation.status.value, began, evaluation=evaluation)
        if self.program is not program:
            self._log("rollback", "after a failed evaluation", "ok", began, before=program)
        return evaluation

    def search_run(
        self,
        budget: Budget,
        seed: int = 0,
        on_trial: Callable[[Trial], None] | None = None,
    ) -> SearchRun:
        """A run from the current program, to be given an agent."""
        program, evaluator, cost = self.program, self.evaluator, self.cost
        return SearchRun(program, self.vocabulary, cost, evaluator, budget, seed, on_trial)

    def search_loop(
        self,
        agent: Agent,
        trials: int = 64,
        seed: int = 0,
        seconds: float | None = None,
        on_trial: Callable[[Trial], None] | None = None,
        patience: int | None = None,
    ) -> Verdict:
        """Let `agent` search from the current program; the verified winner becomes current.

        `trials`, `seconds` and `patience` are those of `Budget`. Every verdict of the search goes to
        the history. Ctrl-C ends the search early, and the best program so far is verified.
        """
        began = time.perf_counter()
        start = self.program

        def record(trial: Trial) -> None:
            evaluation = trial.candidate.evaluation
            text = "; ".join(map(str, trial.candidate.program.steps))
            self._log("evaluate", text, evaluation.status.value, began, evaluation=evaluation)
            if on_trial is not None:
                on_trial(trial)

        run = self.search_run(Budget(trials, seconds, patience), seed, record)
        stopped = run.run(agent)
        verdict = verify_best(run.ranked(), start, self.evaluator)
        self._program = verdict.candidate.program
        evaluation = verdict.candidate.evaluation
        if evaluation.passed:
            self._good = self._program
        message = f"{run.used} trials, stopped: {stopped.value}"
        self._log("search", agent.name, evaluation.status.value, began, message, start, evaluation)
        return verdict

    # -- what is kept -----------------------------------------------------------------------

    def trace(self) -> Trace:
        """The current program as a replayable trace."""
        return self._trace(self.program)

    def trace_of(self, candidate: Candidate, agent: str, seed: int, result: TraceResult) -> Trace:
        """What an agent found, as a replayable trace with its claim."""
        code_key = candidate.evaluation.code_key
        return self._trace(candidate.program, code_key, agent, seed, result)

    def save_history(self, path: str | Path) -> None:
        """Write the decision log as JSON lines."""
        self._events.save(path)

    def close(self) -> None:
        """End the evaluator that this harness made."""
        if self._owns_evaluator and self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None

    def _loaded(self, program: Program | None) -> Program:
        if program is None:
            raise UsageError("no kernel is loaded: call load_ir first, for example with 'matmul'")
        return program

    def _trace(
        self,
        program: Program,
        code_key: str = "",
        agent: str = "",
        seed: int | None = None,
        result: TraceResult | None = None,
    ) -> Trace:
        return Trace(
            workload=program.workload.uri,
            target=program.target,
            transforms=tuple(map(str, program.steps)),
            ir_key=program.ir_key,
            code_key=code_key,
            vocabulary=self.vocabulary.digest,
            versions=compiler_versions(program.target.backend),
            agent=agent,
            seed=seed,
            result=result,
        )

    def _log(
        self,
        action: str,
        subject: str,
        verdict: str,
        began: float,
        message: str = "",
        before: Program | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        self._events.add(action, subject, verdict, began, self.program, message, before, evaluation)


def _workload(
    kernel: Any,
    reference: Callable[..., Array | tuple[Array, ...]] | None,
    name: str,
    num_outputs: int,
) -> Workload:
    """The workload that `load_ir` was asked for; raises UsageError if it has no reference."""
    from tirgym.kernels_suite.problem import require_reference
    from tirgym.kernels_suite.registry import load_workload

    if isinstance(kernel, str):
        made = load_workload(kernel)
    elif isinstance(kernel, Workload):
        made = kernel
    elif isinstance(kernel, Kernel):
        made = Workload.of(kernel)
    else:
        func = _single_function(kernel)
        built = Kernel(
            name, "local", lambda shape: func, reference, train=({},), num_outputs=num_outputs
        )
        made = Workload.of(built)
    require_reference(made.kernel)
    return made


def _single_function(ir: Any) -> Any:
    """The one function of an IRModule; anything else is answered as it is."""
    names = getattr(ir, "get_global_vars", None)
    if names is None:
        return ir
    found = list(names())
    if len(found) != 1:
        raise InvalidValueError("IR module", [str(v) for v in found], "exactly one function")
    return ir[found[0]]
