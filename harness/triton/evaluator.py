"""`SemanticEvaluator`: verdicts on Triton programs without a device; never a pass, never a number."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import asdict
from typing import Any

from tirgym.errors import CompileFailedError, InvalidValueError
from tirgym.harness.closing import Closing
from tirgym.harness.evaluation import Evaluation, GateReport, Level, PhaseTimes
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.triton.compiling import cache_key
from tirgym.harness.triton.executor.gate import SemanticGate
from tirgym.harness.triton.kept import kept
from tirgym.harness.triton.machine_code import assembly_of, code_key_of
from tirgym.harness.triton.pool import CompilePool
from tirgym.harness.triton.program import TritonProgram
from tirgym.harness.triton.request import Compiled, CompileRequest
from tirgym.harness.triton.resources import resources_of
from tirgym.harness.triton.small_shape import small_workload
from tirgym.kernels_suite.kernel import Workload

__all__ = ["SemanticEvaluator"]

_SECRET = b"tirgym"
"""Inputs are the same in every process, so that verdicts are; an agent of passes never sees them."""
_VERDICTS, _GATES = 4096, 8
_LONGEST = 2000
"""Characters of a message."""


class SemanticEvaluator(Closing, Evaluator):
    """Compiles in processes of their own, with a time limit, and executes the TTGIR on NumPy.

    The TTGIR is that of the program itself, run at small sizes for which the same code holds
    (`small_workload`), against the stock TTIR and the kernel's reference. A program that is right is
    SEMANTIC_ONLY. COMPILE_ERROR has the compiler's words, also where it crashed or hung; ILLEGAL is
    what compiles and no block of which fits the GPU. Verdicts are kept on disk.
    """

    def __init__(self, pool: CompilePool | None = None, *, timeout_s: float = 120.0) -> None:
        """A `pool` of the caller's is not closed here."""
        self._pool = pool or CompilePool(1, timeout_s)
        self._owns_pool = pool is None
        self._known: OrderedDict[tuple[str, str, Level], Evaluation] = OrderedDict()
        self._gates: OrderedDict[str, SemanticGate] = OrderedDict()

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """See `Evaluator`; `fresh` draws new secret inputs."""
        if not isinstance(program, TritonProgram):
            raise InvalidValueError("dialect of the semantic check", program.dialect, "triton")
        key = (program.workload.uri, program.ir_key, level)
        known = None if fresh else self._known.get(key)
        if known is None:
            known = self._evaluated(program, level, fresh)
            self._known[key] = known
            while len(self._known) > _VERDICTS:
                self._known.popitem(last=False)
        return known

    def close(self) -> None:
        """End the compile server that was made here."""
        if self._owns_pool:
            self._pool.close()

    # -- one verdict ------------------------------------------------------------------------

    def _evaluated(self, program: TritonProgram, level: Level, fresh: bool) -> Evaluation:
        began, lost = time.perf_counter(), dict[str, Any]()

        def judge() -> dict[str, Any] | None:
            try:
                compiled = self._pool.compile(program.request)
            except CompileFailedError as error:
                record = _record(Status.COMPILE_ERROR, str(error))
                if error.stage != "process":
                    return record
                lost.update(record)  # a crash or a hang may be the machine's: not kept on disk
                return None
            return self._judged(program, compiled, level, fresh)

        parts = (cache_key(program.request), program.workload.uri, level.value)
        record = judge() if fresh else kept("verdicts", parts, judge)
        return _evaluation(program, level, record or lost, time.perf_counter() - began)

    def _judged(
        self, program: TritonProgram, compiled: Compiled, level: Level, fresh: bool
    ) -> dict[str, Any]:
        gpu, small = program.request.gpu, small_workload(program.recipe)
        try:
            held = resources_of(compiled, gpu)
            code_key = code_key_of(assembly_of(compiled, gpu.arch))
        except CompileFailedError as error:
            return _record(Status.COMPILE_ERROR, str(error))
        if held.occupancy.blocks == 0:
            words = (
                f"resource: a block of {compiled.num_warps} warps takes {held.shared_bytes} bytes of "
                f"shared memory and {held.registers} registers a thread; {gpu.arch} has "
                f"{gpu.shared_block_bytes} bytes for a block and {gpu.registers} registers"
            )
            if held.tmem_columns:
                words += f"; {held.tmem_columns} of {gpu.tmem_columns} columns of tensor memory"
            return _record(Status.ILLEGAL, words, code_key)
        gate = self._gate(program, small, fresh)
        launch = program.request.source.launch(small, program.config_dict)
        report = gate.check(compiled.texts["ttgir"], level, 0, launch)
        message = report.message
        if report.right:
            message = f"right as executed on NumPy at {small}; not measured: no device"
        return _record(report.status, message, code_key, report.gate)

    def _gate(self, program: TritonProgram, small: Workload, fresh: bool) -> SemanticGate:
        """The gate of a workload at its small sizes."""
        key = f"{program.workload.uri} {program.target.arch} {small.uri}"
        if not fresh and key in self._gates:
            self._gates.move_to_end(key)
            return self._gates[key]
        stock = CompileRequest.of(program.workload, program.target.arch, until="ttir")
        trusted = self._pool.compile(stock).texts["ttir"]
        launch = stock.source.launch(small)
        gate = SemanticGate(small, launch, trusted, secret=None if fresh else _SECRET)
        if not fresh:
            self._gates[key] = gate
            while len(self._gates) > _GATES:
                self._gates.popitem(last=False)
        return gate


def _record(
    status: Status, message: str, code_key: str = "", gate: GateReport | None = None
) -> dict[str, Any]:
    line = "; ".join(part.strip() for part in message.splitlines() if part.strip())
    return {
        "status": status.value,
        "message": line[:_LONGEST],
        "code_key": code_key,
        "gate": asdict(gate) if gate is not None else None,
    }


def _evaluation(
    program: TritonProgram, level: Level, record: dict[str, Any], seconds: float
) -> Evaluation:
    gate = record["gate"]
    report = None if gate is None else GateReport(**{**gate, "regimes": tuple(gate["regimes"])})
    return Evaluation(
        Status(record["status"]),
        program.ir_key,
        record["code_key"],
        gate=report,
        message=record["message"],
        level=level,
        phases=PhaseTimes(total_s=seconds),
    )
