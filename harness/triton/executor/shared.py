"""Shared memory and what runs beside the program: asynchronous copies and warp-group products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tirgym.harness.triton.executor.faults import Fault
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.numbers import Array, compute_dtype, poison_of
from tirgym.harness.triton.executor.types import MemDescType

__all__ = ["Async", "MemDesc", "Pending"]


class MemDesc:
    """A view of an allocation: its values (with a leading axis of programs in a batch), and for each
    of them how many asynchronous operations use it."""

    __slots__ = ("arriving", "batched", "reading", "values", "whole")

    def __init__(
        self, values: Array, reading: Array, arriving: Array, batched: bool, whole: list[bool]
    ) -> None:
        self.values, self.reading, self.arriving, self.batched = values, reading, arriving, batched
        self.whole = whole
        """[True] while the allocation lives; shared by all of its views"""

    @classmethod
    def allocate(cls, of: MemDescType, programs: int) -> MemDesc:
        """New memory that holds poison; `programs` is 1 outside of a batch."""
        shape = of.shape if programs == 1 else (programs, *of.shape)
        values = np.full(shape, poison_of(of.element), compute_dtype(of.element))
        reading, arriving = np.zeros((2, *of.shape), np.int16)
        return cls(values, reading, arriving, programs > 1, [True])

    def view(self, index: Any) -> MemDesc:
        """Part of it; `index` is for the axes of its type."""
        inner = (slice(None), *index) if self.batched else index
        return MemDesc(
            self.values[inner], self.reading[index], self.arriving[index], self.batched, self.whole
        )

    def transposed(self, order: tuple[int, ...]) -> MemDesc:
        """Its axes in another order."""
        outer = (0, *(axis + 1 for axis in order)) if self.batched else order
        return MemDesc(
            self.values.transpose(outer),
            self.reading.transpose(order),
            self.arriving.transpose(order),
            self.batched,
            self.whole,
        )

    def load(self, operation: Operation) -> Array:
        """A copy of its values; raises Fault after its deallocation."""
        self._require_alive(operation)
        return self.values.copy()

    def store(self, operation: Operation, values: Array) -> None:
        """Overwrite it; raises Fault while a warp-group product reads it."""
        self.require_unread(operation)
        self.values[...] = values

    def require_unread(self, operation: Operation) -> None:
        """Raises Fault while a warp-group product reads it, or after its deallocation."""
        self._require_alive(operation)
        if self.reading.any():
            raise Fault.wrong(
                operation, "race: overwrites shared memory that a warp_group_dot still reads"
            )

    def deallocate(self, operation: Operation) -> None:
        """End its life; raises Fault while anything asynchronous uses it."""
        self.require_unread(operation)
        if self.arriving.any():
            raise Fault.wrong(operation, "race: frees shared memory that a copy still writes")
        self.whole[0] = False

    def _require_alive(self, operation: Operation) -> None:
        if not self.whole[0]:
            raise Fault.wrong(operation, "uses shared memory that was deallocated")


class Pending:
    """Result of an asynchronous warp-group product; it may be read once `done`."""

    __slots__ = ("done", "line", "reads", "value")

    def __init__(self, value: Array, reads: tuple[MemDesc, ...], line: int) -> None:
        self.value, self.reads, self.line = value, reads, line
        self.done = False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise Unfinished(self.line)


class Unfinished(Exception):
    """A `Pending` was read too early; never leaves the executor."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(line)


class Async:
    """Copies to shared memory by commit group, and warp-group products, both in order."""

    def __init__(self) -> None:
        self._open: list[tuple[MemDesc, Array]] = []
        self._groups: list[list[tuple[MemDesc, Array]]] = []
        self._products: list[Pending] = []

    def copy(self, operation: Operation, target: MemDesc, values: Array) -> None:
        """Start a copy: the target holds poison until a wait covers the copy's group."""
        target.require_unread(operation)
        kind = target.values.dtype.kind
        poison = np.nan if kind == "f" else np.frombuffer(b"\x55" * 8, target.values.dtype)[0]
        target.values[...] = poison
        target.arriving += 1
        self._open.append((target, values))

    def commit(self) -> None:
        """Make a group of the copies since the last commit."""
        self._groups.append(self._open)
        self._open = []

    def wait(self, pending: int) -> None:
        """Finish the oldest groups until `pending` are left."""
        while len(self._groups) > pending:
            for target, values in self._groups.pop(0):
                target.values[...] = values
                target.arriving -= 1

    def start_product(self, value: Array, reads: tuple[MemDesc, ...], line: int) -> Pending:
        """A warp-group product that is not waited for; what it reads must not change until then."""
        product = Pending(value, reads, line)
        for read in reads:
            read.reading += 1
        self._products.append(product)
        return product

    def wait_products(self, pending: int) -> None:
        """Finish the oldest products until `pending` are left."""
        while len(self._products) > pending:
            product = self._products.pop(0)
            product.done = True
            for read in product.reads:
                read.reading -= 1
