"""Steps that touch global memory: pointer arithmetic, loads, stores, atomics, assertions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tirgym.harness.status import Status
from tirgym.harness.triton.executor.faults import Fault, uncovered
from tirgym.harness.triton.executor.ir import Operation, Value
from tirgym.harness.triton.executor.numbers import (
    Array,
    decode,
    encode,
    is_covered,
    memory_dtype,
    rounding,
    unsigned,
)
from tirgym.harness.triton.executor.steps import Builder, Compile, Frame, Run, Step, full
from tirgym.harness.triton.executor.types import PointerType, ScalarType, Type

__all__ = ["ACCESSES", "pointee_of", "together"]


def pointee_of(operation: Operation, of: Type) -> ScalarType | PointerType:
    """What a pointer, or a tensor of pointers, points to; raises Fault if it cannot be held."""
    element = of.element
    if not isinstance(element, PointerType):
        raise uncovered(operation, f"an access through {of}")
    pointee = element.pointee
    if not isinstance(pointee, ScalarType | PointerType) or not is_covered(pointee):
        raise uncovered(operation, f"memory of {pointee}")
    return pointee


def together(*values: Any) -> list[Any]:
    """Arrays broadcast to one shape; None stays None."""
    present = [np.asarray(value) for value in values if value is not None]
    shape = np.broadcast_shapes(*(array.shape for array in present))
    arrays = iter(present)
    return [None if value is None else _as_shape(next(arrays), shape) for value in values]


def _as_shape(array: Array, shape: tuple[int, ...]) -> Array:
    return array if array.shape == shape else np.broadcast_to(array, shape)


def _add_pointer(operation: Operation, builder: Builder) -> Step:
    pointer, offset = (value.number for value in operation.operands)
    element = operation.operands[0].type.element
    pointee = pointee_of(operation, operation.operands[0].type)
    assert isinstance(element, PointerType)
    size = np.int64(memory_dtype(pointee).itemsize)
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = frame[pointer] + np.multiply(frame[offset], size, dtype=np.int64)

    return step


def _load(operation: Operation, builder: Builder) -> Step:
    pointer, *rest = (value.number for value in operation.operands)
    mask, other = (rest[0] if rest else None), (rest[1] if len(rest) > 1 else None)
    element = pointee_of(operation, operation.operands[0].type)
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        keep = None if mask is None else frame[mask]
        addresses, keep = together(frame[pointer], keep)
        fill = None if other is None else frame[other]
        frame[result] = run.memory.load(operation, addresses, element, keep, fill)

    return step


def _store(operation: Operation, builder: Builder) -> Step:
    pointer, stored = operation.operands[:2]
    mask = operation.operands[2].number if len(operation.operands) > 2 else None
    element = pointee_of(operation, pointer.type)

    def step(frame: Frame, run: Run) -> None:
        keep = None if mask is None else frame[mask]
        addresses, values, keep = together(frame[pointer.number], frame[stored.number], keep)
        run.memory.store(operation, addresses, element, values, keep)

    return step


_ATOMIC: dict[str, Callable[[Any, Any], Any]] = {
    "fadd": np.add,
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "umax": lambda a, b: np.maximum(unsigned(a), unsigned(b)).view(np.asarray(a).dtype),
    "umin": lambda a, b: np.minimum(unsigned(a), unsigned(b)).view(np.asarray(a).dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda a, b: b,
}


def _lanes(value: Value, frame: Frame, run: Run) -> Array:
    """Elements of every program, flat, those of one program side by side."""
    array = full(frame[value.number], value.type.shape)
    return np.broadcast_to(array, (run.programs, *value.type.shape)).reshape(-1)


def _update(operation: Operation, combine: Callable[..., Any], operands: int) -> Step:
    """Read, combine and write one lane after the other; the result is what was there before.

    Of the operands the first is the pointer, the next `operands` go to `combine` behind the old
    value, and a last one is the mask.
    """
    pointer, *rest = operation.operands
    element = pointee_of(operation, pointer.type)
    masks = rest[operands:]
    result = operation.results[0] if operation.results else None
    narrow = element.is_float and element.bits < 32
    to_type = rounding(element) if narrow else None

    def step(frame: Frame, run: Run) -> None:
        addresses = _lanes(pointer, frame, run)
        given = [_lanes(value, frame, run) for value in rest[:operands]]
        keep = _lanes(masks[0], frame, run) if masks else np.ones(addresses.shape, np.bool_)
        chosen = np.flatnonzero(keep)
        old = np.zeros(addresses.shape, memory_dtype(element))
        if chosen.size:
            view, indices = run.memory.cells(operation, addresses[chosen], element)
            run.memory.write(view, indices, view[indices])
            for lane, cell in zip(chosen.tolist(), indices.tolist(), strict=True):
                old[lane] = view[cell]
                new = combine(
                    decode(view[cell : cell + 1], element), *(g[lane : lane + 1] for g in given)
                )
                view[cell] = encode(to_type(new) if to_type else np.asarray(new), element)[0]
        if result is not None:
            shape = result.type.shape if run.programs == 1 else (run.programs, *result.type.shape)
            frame[result.number] = decode(old, element).reshape(shape)[()]

    return step


def _atomic(operation: Operation, builder: Builder) -> Step:
    kind = operation.header.partition(",")[0].strip()
    if kind not in _ATOMIC:
        raise uncovered(operation, f"the atomic {kind!r}")
    return _update(operation, _ATOMIC[kind], 1)


def _swapped(old: Array, wanted: Array, new: Array) -> Array:
    return np.where(old == wanted, new, old)


def _compare_and_swap(operation: Operation, builder: Builder) -> Step:
    return _update(operation, _swapped, 2)


def _assertion(operation: Operation, builder: Builder) -> Step:
    condition = operation.operands[0].number

    def step(frame: Frame, run: Run) -> None:
        if not np.all(frame[condition]):
            problem = "the assertion does not hold"
            raise Fault(Status.CRASH, problem, operation.name, operation.line)

    return step


def nothing(operation: Operation, builder: Builder) -> Step:
    """Compiles an operation that does nothing here."""
    return lambda frame, run: None


ACCESSES: dict[str, Compile] = {
    "tt.addptr": _add_pointer,
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _compare_and_swap,
    "tt.assert": _assertion,
    "tt.print": nothing,
    "gpu.barrier": nothing,
    "ttg.barrier": nothing,
    "ttg.local_barrier": nothing,
    "tt.debug_barrier": nothing,
}
"""Operation → how it is compiled."""
