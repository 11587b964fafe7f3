"""`optimize`: one workload, one agent, one budget; answers a verified program and its number."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tirgym.baselines.registry import default_agent, in_space, make_agent
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Agent, Budget, Candidate
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation, TimingStats
from tirgym.harness.evaluator import UNMEASURED, Evaluator
from tirgym.harness.program import Program
from tirgym.harness.run_record import Recorder
from tirgym.harness.search_run import SearchRun, Stopped, Trial
from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace, TraceResult
from tirgym.harness.verification import Verdict, check_best, verify_best
from tirgym.harness.vocabulary import Vocabulary
from tirgym.harness.worker import prestart_workers
from tirgym.kernels_suite.kernel import Workload

__all__ = ["OptimizeResult", "Phase", "Progress", "optimize"]

UNVERIFIED = "unverified"
"""Status of a trace that was written while the search was still running."""


class Phase(StrEnum):
    """What a run is doing."""

    SEARCH = "search"
    VERIFY = "verify"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Progress:
    """What `optimize` tells its caller after each answer of the evaluator."""

    phase: Phase
    used: int
    """trials spent"""
    trials: int
    """trials in the budget"""
    best_speedup: float
    """best so far; while searching not yet verified"""
    elapsed_s: float
    candidate: Candidate | None
    """what was judged last"""


@dataclass(frozen=True)
class OptimizeResult:
    """The verified outcome of one run, and how it came about."""

    workload: str
    """workload URI"""
    target: Target
    agent: str
    seed: int
    trials: int
    """trials spent"""
    stopped: Stopped
    status: str
    """verdict of the full evaluation of `program`: "passed", or why there is no number"""
    message: str
    baseline: TimingStats | None
    """the unscheduled program, interleaved with the best"""
    best: TimingStats | None
    speedup: float | None
    speedup_ci: tuple[float, float] | None
    sessions: tuple[float, ...]
    """speedups of the sessions that `speedup` is the median of; its interval spans all of theirs.
    With status "noisy" they were too few for a number"""
    program: Program
    trace: Trace
    curve: tuple[Trial, ...]
    """every answer of the evaluator during the search"""
    checked: tuple[Candidate, ...]
    """the candidates that were re-measured in full to choose the winner"""
    seconds: Mapping[str, float]
    """wall seconds by phase: setup, search (agent alone), measure, verify, total"""
    ir_before: str
    ir_after: str
    predicted_us: float | None = None
    """where nothing is measured: what the static cost model says of `program` …"""
    predicted_speedup: float | None = None
    """… and its speedup over the unscheduled program; a prediction, never a verified number"""

    @property
    def code_key(self) -> str:
        """Hash of the winner's machine code."""
        return self.trace.code_key

    @property
    def baseline_us(self) -> float | None:
        """Time of one call of the unscheduled program, in µs."""
        return self.baseline.lower_quartile_us if self.baseline else None

    @property
    def best_us(self) -> float | None:
        """Time of one call of the winner, in µs."""
        return self.best.lower_quartile_us if self.best else None

    def to_dict(self) -> dict[str, Any]:
        """JSON values: what `tirgym optimize --json` prints."""
        return {
            "workload": self.workload,
            "backend": self.target.backend,
            "target": self.target.arch,
            "num_threads": self.target.num_threads,
            "agent": self.agent,
            "seed": self.seed,
            "trials": self.trials,
            "stopped": self.stopped.value,
            "status": self.status,
            "message": self.message,
            "baseline_us": self.baseline_us,
            "best_us": self.best_us,
            "speedup": self.speedup,
            "speedup_ci": list(self.speedup_ci) if self.speedup_ci else None,
            "sessions": list(self.sessions),
            "predicted_us": self.predicted_us,
            "predicted_speedup": self.predicted_speedup,
            "code_key": self.code_key,
            "trace": list(self.trace.transforms),
            "baseline": asdict(self.baseline) if self.baseline else None,
            "best": asdict(self.best) if self.best else None,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "curve": [_point(trial) for trial in self.curve],
            "checked": [_checked(candidate) for candidate in self.checked],
        }


def optimize(
    workload: Workload | str,
    agent: Agent | str | None = None,
    trials: int = 64,
    seconds: float | None = None,
    seed: int = 0,
    *,
    target: Target | None = None,
    store: Any = None,
    evaluator: Evaluator | None = None,
    vocabulary: Vocabulary | None = None,
    cost: CostModel | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    verify_top: int = 3,
    agent_options: Mapping[str, Any] | None = None,
    space: str | None = None,
    recorder: Recorder | None = None,
    patience: int | None = None,
) -> OptimizeResult:
    """Search for a faster program of `workload` and verify it.

    `workload` is a workload, a URI, or what `load_workload` takes; `agent` a name of the agent
    table, "package.module:Class", an agent, or None for `default_agent`. An agent that is named
    plays `space`, "decision" or an action table ("primitive", "macro", "both"), where it can; None is
    its default. `trials` and `seconds` limit the search, and `patience` ends it after so many trials in a row without a gain of 5 %; the verification comes
    on top. `out` gets the trace: whenever the best improves it is written whole,
    marked "unverified", and at the end with the verified number. Ctrl-C ends the search early;
    what was found is verified and returned. `recorder` gets every verdict, such as a `RunRecord`.
    `store`, `evaluator`, `vocabulary` and `cost` are those of CompileHarness.
    """
    began = time.monotonic()
    target = target or Target("llvm", "", 1)
    if evaluator is None:
        prestart_workers(target.backend)
    if agent is None:
        agent, _ = default_agent(target.backend)
    if isinstance(agent, str):
        options, table = in_space(agent, space, target.backend)
        agent = make_agent(agent, **options, **(agent_options or {}))
        vocabulary = vocabulary or table
    elif space is not None:
        raise InvalidValueError("space", space, "none: the agent is given, not named")
    with CompileHarness(
        target.backend,
        target.arch or None,
        target.num_threads,
        store=store,
        evaluator=evaluator,
        vocabulary=vocabulary,
        cost=cost,
    ) as harness:
        start = harness.load_ir(workload)
        report = _Report(harness, agent.name, seed, trials, began, out, progress, recorder)
        run = harness.search_run(Budget(trials, seconds, patience), seed, report.on_trial)
        setup_s = time.monotonic() - began
        run.run(agent)
        search_s = time.monotonic() - began - setup_s
        verdict = (
            check_best(run.ranked(), start, harness.evaluator, report.on_check)
            if harness.target.backend in UNMEASURED
            else verify_best(run.ranked(), start, harness.evaluator, verify_top, report.on_check)
        )
        total_s = time.monotonic() - began
        seconds_by_phase = {
            "setup": setup_s,
            "search": search_s - run.evaluator_s,
            "measure": run.evaluator_s,
            "verify": total_s - setup_s - search_s,
            "total": total_s,
        }
        result = _result(harness, run, agent.name, seed, verdict, seconds_by_phase)
    report.on_done(result, verdict.candidate)
    return result


class _Report:
    """Tells the caller how it goes, and keeps the best program so far on disk.

    The file is written whole or not at all, marked unverified until the end.
    """

    def __init__(
        self,
        harness: CompileHarness,
        agent: str,
        seed: int,
        trials: int,
        began: float,
        out: str | os.PathLike[str] | None,
        progress: Callable[[Progress], None] | None,
        recorder: Recorder | None,
    ) -> None:
        self.harness, self.agent, self.seed, self.trials = harness, agent, seed, trials
        self.began, self.out, self.progress = began, out, progress
        self.recorder = recorder
        self.best = 0.0
        self.used = 0

    def on_trial(self, trial: Trial) -> None:
        """An answer of the evaluator during the search."""
        candidate, self.used = trial.candidate, trial.number
        if self.recorder is not None:
            self.recorder.record(
                candidate.program,
                candidate.evaluation,
                answers=trial.answers,
                predicted_us=trial.predicted_us,
            )
        speedup = candidate.evaluation.speedup
        if self.out is not None and speedup is not None and speedup > self.best:
            self.best = speedup
            claim = _claim(candidate.evaluation, UNVERIFIED)
            self.harness.trace_of(candidate, self.agent, self.seed, claim).save(self.out)
        self._tell(Phase.SEARCH, trial.best_speedup, candidate)

    def on_check(self, candidate: Candidate) -> None:
        """A full evaluation."""
        self._record_verdict(candidate)
        self._tell(Phase.VERIFY, candidate.evaluation.speedup or 0.0, candidate)

    def on_done(self, result: OptimizeResult, candidate: Candidate) -> None:
        """The end."""
        self._record_verdict(candidate)
        if self.out is not None:
            result.trace.save(self.out)
        self._tell(Phase.DONE, result.speedup or 0.0, candidate)

    def _record_verdict(self, candidate: Candidate) -> None:
        if self.recorder is not None:
            program = candidate.program
            self.recorder.record(program, candidate.evaluation, before=program)

    def _tell(self, phase: Phase, best: float, candidate: Candidate) -> None:
        if self.progress is not None:
            elapsed = time.monotonic() - self.began
            self.progress(Progress(phase, self.used, self.trials, best, elapsed, candidate))


def _claim(evaluation: Evaluation, status: str) -> TraceResult:
    measured = evaluation.measurement
    if measured is None:
        return TraceResult(status)
    return TraceResult(
        status,
        speedup=measured.speedup,
        speedup_ci=measured.speedup_ci,
        baseline_us=measured.baseline.lower_quartile_us * measured.anchor_ratio,
        best_us=measured.latency_us,
    )


def _result(
    harness: CompileHarness,
    run: SearchRun,
    agent: str,
    seed: int,
    verdict: Verdict,
    seconds: Mapping[str, float],
) -> OptimizeResult:
    evaluation = verdict.candidate.evaluation
    measured = evaluation.measurement
    program = verdict.candidate.program
    claim = _claim(evaluation, evaluation.status.value)
    predicted = (
        (run.cost.predict_us(program), run.worth(program, evaluation))
        if evaluation.status is Status.SEMANTIC_ONLY
        else (None, None)
    )
    return OptimizeResult(
        workload=program.workload.uri,
        target=program.target,
        agent=agent,
        seed=seed,
        trials=run.used,
        stopped=run.stopped,
        status=evaluation.status.value,
        message=evaluation.message,
        baseline=measured.baseline if measured else None,
        best=measured.candidate if measured else None,
        speedup=measured.speedup if measured else None,
        speedup_ci=measured.speedup_ci if measured else None,
        sessions=evaluation.sessions,
        program=program,
        trace=harness.trace_of(verdict.candidate, agent, seed, claim),
        curve=tuple(run.trials),
        checked=verdict.checked,
        seconds=seconds,
        ir_before=harness.start.text(),
        ir_after=program.text(),
        predicted_us=predicted[0],
        predicted_speedup=predicted[1],
    )


def _point(trial: Trial) -> dict[str, Any]:
    evaluation = trial.candidate.evaluation
    return {
        "trial": trial.number,
        "charged": trial.charged,
        "status": evaluation.status.value,
        "speedup": evaluation.speedup,
        "best_speedup": trial.best_speedup,
        "predicted_us": trial.predicted_us,
        "measured_us": evaluation.measurement.latency_us if evaluation.measurement else None,
        "depth": len(trial.candidate.program.steps),
        "elapsed_s": round(trial.elapsed_s, 3),
    }


def _checked(candidate: Candidate) -> dict[str, Any]:
    evaluation = candidate.evaluation
    return {
        "code_key": evaluation.code_key,
        "status": evaluation.status.value,
        "speedup": evaluation.speedup,
        "message": evaluation.message,
    }
