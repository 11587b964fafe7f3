"""`DeviceCheck`: compiles candidates, has the device judge and time them, and keeps every answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tirgym.benchmarks.device_check.plan import TRIAL, Plan
from tirgym.benchmarks.device_check.record import Record
from tirgym.benchmarks.device_check.trial import Trial
from tirgym.errors import (
    CompileFailedError,
    DeviceError,
    EvaluationError,
    TirgymError,
    WorkerDiedError,
)
from tirgym.harness.channel import DeadlineError
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.status import Status
from tirgym.harness.triton.appraisal import Appraisal
from tirgym.harness.triton.cost import matrix_tflops
from tirgym.harness.triton.device.device import Binary, Runnable
from tirgym.harness.triton.device.process import DeviceProcess
from tirgym.harness.triton.gpus import gpu
from tirgym.harness.triton.pipeline import Pipeline
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import bytes_of

__all__ = ["LOST", "Candidate", "DeviceCheck", "OutOfTimeError"]

_APPRAISE = "tirgym.harness.triton.appraisal:appraise"
_FLOOR_MARGIN = 1.3
"""a kernel may be this much faster than its bytes take by the measured copy before that is SUSPECT"""
_LEAST_S = 5.0
"""a row is not begun with less time left"""


LOST = (DeadlineError, WorkerDiedError, DeviceError)
"""What a call may raise that concerns what was called and nothing else"""


class OutOfTimeError(EvaluationError):
    """The budget is spent; what was to come is named as not reached."""


@dataclass(frozen=True)
class Candidate:
    """A configuration with a pass pipeline, and what the compiler made of it."""

    config: Mapping[str, int]
    without: str
    """pass that is left out of the stock pipeline, "" for none"""
    request: CompileRequest
    made: Appraisal | CompileFailedError

    @property
    def launchable(self) -> bool:
        """Whether it compiled and fits on a compute unit."""
        return math.isfinite(self.predicted_us)

    @property
    def failed(self) -> bool:
        """Whether the compiler refused it."""
        return isinstance(self.made, CompileFailedError)

    @property
    def binary(self) -> Binary:
        """Raises the compiler's error."""
        if isinstance(self.made, CompileFailedError):
            raise self.made
        return self.made.binary

    @property
    def predicted_us(self) -> float:
        """By the static cost; infinite without code."""
        return self.made.predicted_us if isinstance(self.made, Appraisal) else math.inf

    @property
    def key(self) -> str:
        """Equal for equal machine code; the configuration's where there is none."""
        if isinstance(self.made, Appraisal):
            return self.made.binary.code_key
        return json.dumps([sorted(self.config.items()), self.without])


class DeviceCheck:
    """One run: a plan, a compiler, a device and a record."""

    def __init__(
        self,
        plan: Plan,
        arch: str,
        pool: CompilePool,
        device: DeviceProcess,
        record: Record,
        started: float,
        prepared: Mapping[str, Path],
    ) -> None:
        """`started` is the run's beginning by `time.monotonic`; `prepared` are files by kernel."""
        self.prepared = prepared
        self.plan, self.arch, self.pool, self.device, self.record = plan, arch, pool, device, record
        self._started = started
        self._defaults: dict[str, Candidate] = {}
        self._at = ""
        """workload that the device's process has the references of"""

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.plan.budget_s - (time.monotonic() - self._started)

    def require_time(self) -> None:
        """Raises OutOfTimeError once the budget is spent."""
        if self.left_s < _LEAST_S:
            raise OutOfTimeError(f"the budget of {self.plan.budget_s:g} s is spent")

    # --- compiling --------------------------------------------------------------------------------

    def compiled(self, workload: Workload, configs: Sequence[Mapping[str, int]]) -> list[Candidate]:
        """`configs` with the stock pipeline, several at a time."""
        return self._compiled([(config, "", None) for config in configs], workload)

    def shortened(
        self, workload: Workload, config: Mapping[str, int], found: Sequence[tuple[str, Pipeline]]
    ) -> list[Candidate]:
        """One configuration with other pipelines, each with the name of the pass it lacks."""
        return self._compiled([(config, name, pipeline) for name, pipeline in found], workload)

    def _compiled(
        self,
        wanted: Sequence[tuple[Mapping[str, int], str, Pipeline | None]],
        workload: Workload,
    ) -> list[Candidate]:
        requests = [
            CompileRequest.of(workload, self.arch, config, pipeline=pipeline)
            for config, _, pipeline in wanted
        ]
        answers = self.pool.call_many(_APPRAISE, requests)
        for answer in answers:
            if isinstance(answer, TirgymError) and not isinstance(answer, CompileFailedError):
                raise answer
        return [
            Candidate(config, without, request, answer)
            for (config, without, _), request, answer in zip(wanted, requests, answers, strict=True)
        ]

    def default(self, workload: Workload) -> Candidate:
        """The kernel's default configuration; raises CompileFailedError."""
        if workload.uri not in self._defaults:
            request = CompileRequest.of(workload, self.arch)
            (found,) = self.compiled(workload, [request.source.default_config])
            if isinstance(found.made, CompileFailedError):
                raise found.made
            self._defaults[workload.uri] = found
        return self._defaults[workload.uri]

    # --- the device -------------------------------------------------------------------------------

    def ask(self, method: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """What the device answers, within its time and the budget's.

        Raises OutOfTimeError, DeadlineError for a call that hangs, and what `DeviceProcess.call` raises.
        """
        self.require_time()
        patience = self.plan.row_timeout_s if timeout_s is None else timeout_s
        try:
            return self.device.call(method, *arguments, timeout_s=min(patience, self.left_s))
        except (DeadlineError, WorkerDiedError) as error:
            self._at = ""  # another process answers the next call
            if isinstance(error, DeadlineError):
                self.require_time()
            raise

    def evaluate(self, workload: Workload, candidate: Candidate) -> Trial:
        """Gate and time `candidate`, or the kept answer for the same machine code. Whatever the candidate
        does to the device costs this trial alone."""
        key = f"{workload.uri}#{candidate.key}"
        if key not in self.record.trials:
            found = self._evaluation(workload, candidate)
            trial = Trial.of(candidate.config, candidate.without, candidate.predicted_us, found)
            self.record.add_trial(key, trial.to_json())
        kept = Trial.from_json(self.record.trials[key])
        return replace(kept, config=dict(candidate.config), without=candidate.without)

    def trial(
        self,
        default: Runnable,
        binary: Runnable,
        regimes: Sequence[Regime],
        floor_us: float,
        program: str,
        predicted_us: float | None,
    ) -> Trial:
        """The same for any binary, called `program`, beside `default`; raises CompileFailedError where
        `default` must be compiled and cannot be."""
        key = f"{binary.workload}#{binary.code_key}"
        if key not in self.record.trials:
            found = self._judged(default, binary, regimes, floor_us)
            priced = math.inf if predicted_us is None else predicted_us
            trial = replace(Trial.of({}, "", priced, found), program=program)
            self.record.add_trial(key, trial.to_json())
        return replace(Trial.from_json(self.record.trials[key]), program=program)

    def _evaluation(self, workload: Workload, candidate: Candidate) -> Evaluation:
        if isinstance(candidate.made, CompileFailedError):
            return Evaluation(Status.COMPILE_ERROR, "", "", message=str(candidate.made))
        default = self.default(workload).binary
        return self._judged(default, candidate.binary, TRIAL, self.floor_us(workload))

    def _judged(
        self, default: Runnable, binary: Runnable, regimes: Sequence[Regime], floor_us: float
    ) -> Evaluation:
        seen = binary.workload == self._at  # the first call of a workload works out its references
        patience = self.plan.trial_timeout_s if seen else self.plan.row_timeout_s
        self._at = binary.workload
        try:
            found: Evaluation = self.ask(
                "evaluate", default, binary, tuple(regimes), floor_us, timeout_s=patience
            )
        except (DeadlineError, WorkerDiedError) as error:
            hung = isinstance(error, DeadlineError)
            status = Status.TIMEOUT if hung else Status.CRASH
            return Evaluation(status, binary.code_key, binary.code_key, message=str(error))
        return found

    def floor_us(self, workload: Workload) -> float:
        """A time below this is SUSPECT: compulsory bytes by the measured copy, arithmetic by the
        published peaks."""
        made = self.default(workload).made
        compute_us = made.compute_us if isinstance(made, Appraisal) else 0.0
        return self._floor_us(bytes_of(workload), compute_us)

    def bound_us(self, nbytes: int, flops: int, dtype: str) -> float:
        """The same from what a workload needs; arithmetic at the peak of the units for matrices."""
        element = {"float16": "f16", "bfloat16": "bf16", "int8": "i8"}.get(dtype, "f32")
        return self._floor_us(nbytes, flops / (matrix_tflops(gpu(self.arch), element) * 1e6))

    def _floor_us(self, nbytes: int, compute_us: float) -> float:
        copy = self.record.rows.get(("device", "copy"), {}).get("gbs")
        memory_us = nbytes / (copy * 1e3) if copy else 0.0
        return max(compute_us, memory_us) / _FLOOR_MARGIN
