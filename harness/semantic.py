"""`semantic_check`: the meaning of a thread-bound program, by running its threads one after the other.

For GPUs that are not here. Thread-bound loops become serial ones, memory of blocks and threads becomes
ordinary memory, an instruction on tensor cores becomes loops that do what its call says, and the program
goes through the gate on this machine's CPU. One thread after the
other sees what the one before wrote, so a missing barrier, a race and whatever the device's compiler
does stay unseen: the best verdict is SEMANTIC_ONLY, never a pass, never a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import GateReport, Level
from tirgym.harness.evaluation_run import static_finding
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.tensorir.fragments import as_loops, without_mixed_fragments
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.nest import read_nest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.serial import serial_module

__all__ = ["SemanticVerdict", "on_cpu", "semantic_check"]


@dataclass(frozen=True, slots=True)
class SemanticVerdict:
    """Verdict on the meaning of a program. Refuses to exist as a pass: no device ran it."""

    status: Status
    """SEMANTIC_ONLY where nothing wrong was found, else the gate's rejection or ILLEGAL"""
    report: GateReport | None = None
    message: str = ""

    def __post_init__(self) -> None:
        if self.status is Status.PASSED:
            accepted = f"{Status.SEMANTIC_ONLY}: a pass needs a run on the device"
            raise InvalidValueError("semantic verdict", self.status, accepted)


def semantic_check(
    program: Program, evaluator: LocalEvaluator | None = None, level: Level = Level.FULL
) -> SemanticVerdict:
    """Check the rules about threads, then run `program` serially behind the gate.

    `evaluator` must take programs of backend llvm; None makes one. Raises InvalidValueError for a program
    in another dialect than TensorIR.
    """
    if not isinstance(program, TensorIRProgram):
        raise InvalidValueError("dialect of the serial check", program.dialect, "tensorir")
    finding = static_finding(program)
    if finding:
        return SemanticVerdict(Status.ILLEGAL, None, finding)
    plain = on_cpu(program)
    if evaluator is None:
        with LocalEvaluator(store=":memory:") as made:
            found = made.check(plain, level)
    else:
        found = evaluator.check(plain, level)
    status = Status.SEMANTIC_ONLY if found.status is Status.PASSED else found.status
    return SemanticVerdict(status, found.report, found.message)


def on_cpu(program: TensorIRProgram) -> TensorIRProgram:
    """`program` for one thread of this machine's CPU: the same blocks, every loop serial."""
    mod = as_loops(without_mixed_fragments(program).mod)
    mod = _global_memory(serial_module(mod))
    schedule = new_schedule(mod)
    return TensorIRProgram(program.workload, backend("llvm").target(), (), schedule)


def _global_memory(mod: Any) -> Any:
    """`mod` with every intermediate buffer in ordinary memory."""
    schedule = new_schedule(mod)
    found = schedule.get_child_blocks(schedule.get_sblock("root"))
    for block, known in zip(found, read_nest(mod).blocks, strict=True):
        for number, access in enumerate(known.facts.writes):
            if access.buffer.scope != "global":
                schedule.set_scope(block, number, "global")
    return schedule.mod
