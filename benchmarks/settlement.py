"""Settling a rejection: is the schedule wrong, is the compiler wrong, or is the gate wrong?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from tirgym.errors import IllegalTransformError
from tirgym.harness.evaluation import Level, WitnessReport
from tirgym.harness.status import Status

if TYPE_CHECKING:
    from tirgym.harness.local_evaluator import GateCheck
    from tirgym.harness.tensorir.program import TensorIRProgram
    from tirgym.harness.transforms.base import Transform

__all__ = ["ROUNDING", "Cause", "Judge", "Rejection", "replayed", "settle", "shrunk"]

ROUNDING = 100.0
"""A rejected error within this many limits might be rounding that the gate should have allowed, and
counts as a false rejection until somebody has understood it. Miscompiles seen so far are off by
more than 10,000 limits, or leave NaN."""
_REJECTED = frozenset({Status.WRONG_RESULT, Status.FLAKY, Status.CRASH})


class Cause(StrEnum):
    """Whose fault a rejection is."""

    WRONG_SCHEDULE = "wrong schedule"
    """the IR means something else, however it is built: a hole in the legality rules"""
    MISCOMPILE = "miscompile"
    """the IR is right when it is built plainly: the compiler's fault, and a kill of the gate's"""
    FALSE_REJECTION = "false rejection"
    """the program is right: the gate's fault"""
    UNSETTLED = "unsettled"
    """rejected once, and not again"""


class Judge(Protocol):
    """What settles: `LocalEvaluator`."""

    def check(self, program: TensorIRProgram, level: Level = Level.FULL) -> GateCheck:
        """The gate alone."""

    def second_witness(self, program: TensorIRProgram, level: Level = Level.FULL) -> WitnessReport:
        """The same IR built in other ways."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """One settled rejection with the shortest transform list that still shows it."""

    workload: str
    target: str
    cause: str
    status: str
    message: str
    witnesses: tuple[tuple[str, str], ...]
    transforms: tuple[str, ...]
    """shrunk"""
    drawn: tuple[str, ...]
    """as drawn"""


def settle(judge: Judge, program: TensorIRProgram, check: GateCheck) -> Rejection:
    """Find the cause of a rejection and shrink the program's transforms without changing it."""
    report = witnesses(judge, program)
    cause = cause_of(check, report)
    steps = shrunk(judge, program, cause)
    workload, target = program.workload.uri, str(program.target)
    texts = tuple(str(step) for step in program.steps)
    return Rejection(
        workload,
        target,
        str(cause),
        str(check.status),
        check.message,
        report.witnesses,
        tuple(str(step) for step in steps),
        texts,
    )


def witnesses(judge: Judge, program: TensorIRProgram) -> WitnessReport:
    """What other builds of the same IR say; after a crash, what the one with serial loops says.

    A program that ends its worker leaves nothing to compare on, so the serial one gets inputs of
    its own.
    """
    from tvm.s_tir import Schedule

    from tirgym.harness.tensorir.program import TensorIRProgram
    from tirgym.harness.tensorir.serial import serial_module

    report = judge.second_witness(program)
    if report.witnesses or not report.candidate:
        return report
    schedule = Schedule(serial_module(program.mod), debug_mask="none", error_render_level="none")
    check = judge.check(TensorIRProgram(program.workload, program.target, (), schedule))
    failure = "" if check.status is Status.PASSED else f"{check.status}: {check.message}"
    return WitnessReport(report.candidate, (("serial loops, inputs of its own", failure),))


def cause_of(check: GateCheck, report: WitnessReport) -> Cause:
    """Whose fault it is that `check` rejected, given what the witnesses said."""
    if not report.candidate:
        return Cause.UNSETTLED
    if report.wrong_schedule:
        return Cause.WRONG_SCHEDULE
    gate = check.report
    if check.status is Status.WRONG_RESULT and gate is not None and 0 < gate.worst_error < ROUNDING:
        return Cause.FALSE_REJECTION
    return Cause.MISCOMPILE


def replayed(start: TensorIRProgram, steps: Sequence[Transform]) -> TensorIRProgram | None:
    """`start` after `steps`; None if one of them is illegal."""
    program = start
    try:
        for step in steps:
            program = program.apply(step)
    except IllegalTransformError:
        return None
    return program


def shrunk(judge: Judge, program: TensorIRProgram, cause: Cause) -> tuple[Transform, ...]:
    """The transforms without those that the rejection does not need, by dropping one at a time.

    A shorter list counts when it is legal, rejected, and has the same cause.
    """
    from tirgym.harness.tensorir.program import TensorIRProgram

    start = TensorIRProgram.start(program.workload, program.target)

    def same(steps: Sequence[Transform]) -> bool:
        shorter = replayed(start, steps)
        if shorter is None:
            return False
        check = judge.check(shorter)
        if check.status not in _REJECTED:
            return False
        return cause_of(check, witnesses(judge, shorter)) is cause

    kept = list(program.steps)
    if cause is Cause.UNSETTLED:
        return tuple(kept)
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(kept))):
            shorter_steps = kept[:place] + kept[place + 1 :]
            if same(shorter_steps):
                kept, changed = shorter_steps, True
    return tuple(kept)
