"""`SemanticGate`: the gate's inputs and acceptance rules on Triton IR that is executed on NumPy.

It checks what a program means, not what a device makes of it: nothing below TTGIR runs (barriers,
fences, LLVM, ptxas). So the best verdict is SEMANTIC_ONLY: never a pass, never a number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.harness.buffers import GuardedBuffer, Poison
from tirgym.harness.evaluation import GateReport, Level
from tirgym.harness.gate import Bench, InputSet, run_gate
from tirgym.harness.status import Status
from tirgym.harness.triton.executor.executable import Executable
from tirgym.harness.triton.executor.faults import Fault
from tirgym.harness.triton.executor.ir import Module
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.harness.triton.input_sets import InputSets
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import tensors
from tirgym.kernels_suite.triton.source import Launch

__all__ = ["SemanticGate", "SemanticReport"]

_ROTATING = (Regime.TIES, Regime.TINY, Regime.MIXED, Regime.HUGE, Regime.SPARSE, Regime.EXTREME)
_TRAINING_RERUNS = 2


@dataclass(frozen=True, slots=True)
class SemanticReport:
    """Verdict on the meaning of a program. Refuses to exist as a pass: no device ran it."""

    status: Status
    """SEMANTIC_ONLY when everything that was executed is right, else WRONG_RESULT, INCOMPLETE (an
    operation outside the coverage), CRASH (an assertion) or TIMEOUT (too many operations)"""
    gate: GateReport | None = None
    """None when execution ended early"""
    message: str = ""
    """one line: what is wrong, or what is not covered"""
    seconds: float = 0.0
    """in the executor"""

    def __post_init__(self) -> None:
        if self.status is Status.PASSED:
            accepted = f"{Status.SEMANTIC_ONLY}: a pass needs a run on the device"
            raise InvalidValueError("semantic verdict", self.status, accepted)

    @property
    def right(self) -> bool:
        """Whether nothing wrong was found and nothing was left out."""
        return self.status is Status.SEMANTIC_ONLY


class _HostBench(Bench):
    """Guarded memory of the host, handed over as NumPy arrays."""

    regime: Regime | None = None
    """of the inputs that were loaded last"""

    def arguments(self) -> tuple[Any, ...]:
        """Arrays in the order inputs, outputs."""
        return tuple(buffer.array for buffer in (*self.inputs, *self.outputs))

    def prepare(self, given: InputSet, poison: Poison) -> None:
        """Load the inputs, poison the outputs, and note the regime."""
        self.regime = given.regime
        super().prepare(given, poison)


class SemanticGate:
    """Judges programs of one workload against its reference and a trusted program (stock TTIR).

    Raises EvaluationError from `check` if the trusted program fails its own gate.
    """

    def __init__(
        self,
        workload: Workload,
        launch: Launch,
        trusted: str | Module,
        *,
        secret: bytes | None = None,
        seed: int = 0,
    ) -> None:
        """`launch` gives grid and arguments of the trusted program; `secret` None draws one."""
        self.workload, self.launch = workload, launch
        self._bench, baseline = self._make_bench(), self._make_bench()
        function = self._function(_executable(trusted), launch)
        self._inputs = InputSets(workload, baseline, function, secret=secret, seed=seed)
        self._kept: dict[Regime, InputSet] = {}
        self._full: tuple[int, list[InputSet]] = (-1, [])
        self._next = 1

    def _make_bench(self) -> _HostBench:
        ins, outs = tensors(self.workload)
        inputs = [GuardedBuffer(tensor, i) for i, tensor in enumerate(ins)]
        outputs = [GuardedBuffer(tensor, len(ins) + i) for i, tensor in enumerate(outs)]
        return _HostBench(inputs, outputs, self.workload.kernel.compare)

    def check(
        self,
        candidate: str | Module,
        level: Level = Level.FULL,
        number: int | None = None,
        launch: Launch | None = None,
    ) -> SemanticReport:
        """Verdict on `candidate`; `launch` where its grid or arguments differ from the trusted one's.

        FULL draws inputs in every regime, TRAINING keeps its inputs and takes three regimes, of
        which two rotate with `number`. Equal numbers mean equal inputs; None takes a number that was
        not used before. Raises DamagedFileError for text that does not parse.
        """
        if number is None:
            number = self._next
            self._next += 1
        started = time.perf_counter()
        try:
            function = self._function(_executable(candidate), launch or self.launch)
        except Fault as fault:
            return SemanticReport(fault.status, None, str(fault))
        sets = self._sets(level, number)
        reruns = _TRAINING_RERUNS if level is Level.TRAINING else None
        try:
            outcome = run_gate(self._bench, function, sets, np.inf, reruns)
        except Fault as fault:
            message = f"{self._bench.regime}: {fault}"
            return SemanticReport(fault.status, None, message, time.perf_counter() - started)
        status = Status.SEMANTIC_ONLY if outcome.status is Status.PASSED else outcome.status
        return SemanticReport(status, outcome.report, outcome.report.failure, outcome.runs_s)

    def _function(self, executable: Executable, launch: Launch) -> Callable[..., None]:
        """A function of all tensors, inputs first, that runs `executable`."""
        names = [buffer.tensor.name for buffer in (*self._bench.inputs, *self._bench.outputs)]
        given = [argument for argument in launch.arguments if argument.type != "constexpr"]

        def call(*arrays: Any) -> None:
            named = dict(zip(names, arrays, strict=True))
            arguments: list[Any] = [
                (str(a.value), named[str(a.value)]) if a.is_pointer else a.value for a in given
            ]
            executable.run(launch.grid, arguments)

        return call

    # --- input sets -----------------------------------------------------------------------------

    def _sets(self, level: Level, number: int) -> list[InputSet]:
        if level is Level.FULL:
            if self._full[0] != number:
                sets = [self._draw(regime, f"full {number}") for regime in Regime]
                self._full = number, sets
            return self._full[1]
        pair = [_ROTATING[(2 * number + i) % len(_ROTATING)] for i in range(2)]
        for regime in (Regime.RAMP, *pair):
            if regime not in self._kept:
                self._kept[regime] = self._draw(regime, "kept")
        return [self._kept[regime] for regime in (Regime.RAMP, *pair)]

    def _draw(self, regime: Regime, purpose: str) -> InputSet:
        try:
            return self._inputs.draw(regime, purpose)
        except Fault as fault:
            raise self._inputs.unsound(f"{regime}: {fault}") from fault


def _executable(program: str | Module) -> Executable:
    return Executable(parse_module(program) if isinstance(program, str) else program)
