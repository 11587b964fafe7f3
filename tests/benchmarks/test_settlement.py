"""Rejections are settled rightly, and shrink to what they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small import SMALL, TARGET, make

from tirgym.benchmarks.settlement import Cause, cause_of, settle, shrunk
from tirgym.harness.evaluation import GateReport, Level, WitnessReport
from tirgym.harness.local_evaluator import GateCheck
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram

SERIAL_RIGHT = (("serial loops", ""), ("generic", "wrong too"))
ALL_WRONG = (("serial loops", "wrong too"), ("generic", "wrong too"))
STEPS = ("Split(loop=0, factor=2)", "Split(loop=2, factor=4)", "Reorder(loop=0)", "Fuse(loop=3)")


def rejected(worst: float = 1e6, status: Status = Status.WRONG_RESULT) -> GateCheck:
    return GateCheck(status, "code", GateReport(("normal",), worst, False, "wrong"), "wrong")


@pytest.mark.parametrize(
    ("check", "report", "cause"),
    [
        (rejected(), WitnessReport("wrong", ALL_WRONG), Cause.WRONG_SCHEDULE),
        (rejected(), WitnessReport("wrong", SERIAL_RIGHT), Cause.MISCOMPILE),
        (rejected(1.5), WitnessReport("wrong", SERIAL_RIGHT), Cause.FALSE_REJECTION),
        (rejected(1.5), WitnessReport("wrong", ALL_WRONG), Cause.WRONG_SCHEDULE),
        (rejected(0.5, Status.FLAKY), WitnessReport("flaky", SERIAL_RIGHT), Cause.MISCOMPILE),
        (rejected(), WitnessReport("", ()), Cause.UNSETTLED),
    ],
)
def test_causes(check: GateCheck, report: WitnessReport, cause: Cause) -> None:
    assert cause_of(check, report) is cause


class Suspicious:
    """Rejects programs by a rule; one witness sides with them."""

    def __init__(self, rejects: Callable[[TensorIRProgram], bool]) -> None:
        self.rejects = rejects
        self.asked = 0

    def check(self, program: TensorIRProgram, level: Level = Level.FULL) -> GateCheck:
        self.asked += 1
        if self.rejects(program):
            return rejected()
        return GateCheck(Status.PASSED, "code", GateReport(("normal",), 0.1, True))

    def second_witness(self, program: TensorIRProgram, level: Level = Level.FULL) -> WitnessReport:
        return (
            WitnessReport("wrong", SERIAL_RIGHT) if self.rejects(program) else WitnessReport("", ())
        )


def has(*kinds: str) -> Callable[[TensorIRProgram], bool]:
    return lambda program: set(kinds) <= {step.name for step in program.steps}


def test_shrinking_keeps_what_the_rejection_needs() -> None:
    program = make(SMALL["matmul"], *STEPS)
    judge = Suspicious(has("Reorder"))
    assert [step.name for step in shrunk(judge, program, Cause.MISCOMPILE)] == ["Reorder"]


def test_shrinking_never_mixes_causes() -> None:
    program = make(SMALL["matmul"], *STEPS)
    judge = Suspicious(has("Reorder"))
    assert shrunk(judge, program, Cause.WRONG_SCHEDULE) == program.steps


def test_a_settled_rejection_replays() -> None:
    program = make(SMALL["matmul"], *STEPS)
    judge = Suspicious(has("Split", "Fuse"))
    found = settle(judge, program, judge.check(program))
    assert found.cause == "miscompile"
    assert found.target == str(TARGET)
    assert found.drawn == STEPS
    assert has("Split", "Fuse")(make(found.workload, *found.transforms))
    assert len(found.transforms) < len(STEPS)
