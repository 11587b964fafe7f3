"""`Fault`: why the execution of a program ended early, as a status with operation and line."""

from __future__ import annotations

from tirgym.errors import TirgymError
from tirgym.harness.status import Status
from tirgym.harness.triton.executor.ir import Operation

__all__ = ["Diverged", "Fault", "uncovered"]


class Fault(TirgymError):
    """A program did what no right program does, or something that the executor does not cover.

    `status` is WRONG_RESULT (an access out of bounds, a race, undefined control flow), CRASH (an
    assertion), TIMEOUT (too many steps) or INCOMPLETE (an operation outside the coverage).
    """

    def __init__(self, status: Status, problem: str, operation: str = "", line: int = 0) -> None:
        self.status, self.problem, self.operation, self.line = status, problem, operation, line
        super().__init__(status, problem, operation, line)

    def __str__(self) -> str:
        where = f"line {self.line}: {self.operation}: " if self.operation else ""
        return f"{where}{self.problem}"

    @classmethod
    def wrong(cls, operation: Operation, problem: str) -> Fault:
        """`operation` did what it must not."""
        return cls(Status.WRONG_RESULT, problem, operation.name, operation.line)


def uncovered(operation: Operation, detail: str = "") -> Fault:
    """`operation`, or one of its forms, is outside the coverage."""
    problem = f"{detail or 'this operation'} is not covered by the executor"
    return Fault(Status.INCOMPLETE, problem, operation.name, operation.line)


class Diverged(Exception):
    """Programs that run together disagree on where control goes; never leaves the executor.

    `groups` has one number for each program: those with equal numbers agree.
    """

    def __init__(self, groups: object) -> None:
        self.groups = groups
        super().__init__()
