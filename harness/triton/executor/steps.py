"""What a compiled operation is: a step that reads and writes a frame of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tirgym.harness.status import Status
from tirgym.harness.triton.executor.faults import Diverged, Fault
from tirgym.harness.triton.executor.ir import Operation, Region
from tirgym.harness.triton.executor.memory import GlobalMemory
from tirgym.harness.triton.executor.numbers import Array
from tirgym.harness.triton.executor.shared import Async

__all__ = ["Body", "Builder", "Compile", "Frame", "Run", "Step", "full", "lead_of", "one_answer"]

Frame = list[Any]
"""A value for each number: arrays, `MemDesc`s, `Pending`s.

The array of a tensor of rank r has rank r if all programs of a batch agree on it, else r + 1, with
an axis of programs in front. Any axis of size n may have size 1 instead: it is broadcast when
somebody must have it whole. Scalars are arrays or NumPy scalars of rank 0 or 1.
"""


@dataclass(slots=True)
class Run:
    """One batch of programs on its way."""

    memory: GlobalMemory
    ids: tuple[Any, Any, Any]
    """program id on each axis: int32, of rank 0 or (programs,)"""
    grid: tuple[int, int, int]
    programs: int
    steps_left: int
    jobs: Async = field(default_factory=Async)

    def spend(self, steps: int) -> None:
        """Count steps; raises Fault when there are no more."""
        self.steps_left -= steps
        if self.steps_left < 0:
            raise Fault(Status.TIMEOUT, "the limit of executed operations is reached")


Step = Callable[[Frame, Run], None]


class Body(Protocol):
    """A compiled region."""

    arguments: tuple[int, ...]
    """numbers of the arguments of its first block"""

    def run(self, frame: Frame, run: Run) -> list[Any]:
        """Execute it; the operands of the terminator that leaves it."""


class Builder(Protocol):
    """Compiles what an operation contains or calls."""

    def body(self, region: Region) -> Body:
        """A region of an operation."""

    def called(self, name: str, operation: Operation) -> Body:
        """The body of a function of the module."""


Compile = Callable[[Operation, Builder], Step]


def lead_of(value: Array, rank: int) -> int:
    """1 if `value`, of a type of `rank` axes, has an axis of programs, else 0."""
    return int(np.ndim(value)) - rank


def full(value: Array, shape: tuple[int, ...]) -> Array:
    """`value` with every axis of its type whole; read-only where it had to be broadcast."""
    array = np.asarray(value)
    target = array.shape[: array.ndim - len(shape)] + shape
    return array if array.shape == target else np.broadcast_to(array, target)


def one_answer(value: Any) -> Any:
    """A scalar on which control depends; raises Diverged where programs disagree."""
    if np.ndim(value) == 0:
        return value
    first = value[0]
    if np.all(value == first):
        return first
    raise Diverged(np.unique(value, return_inverse=True)[1])
