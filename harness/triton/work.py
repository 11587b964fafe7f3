"""`Work`: what one launch asks of arithmetic units and memory, from its TTIR and its sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.parser import parse_module
from tirgym.harness.triton.executor.types import PointerType
from tirgym.harness.triton.index_values import visits
from tirgym.kernels_suite.triton.source import Launch

__all__ = ["Work", "work_of"]

_ACCESSES = {"tt.load": 0, "tt.store": 0, "tt.atomic_rmw": 0}
_EXPENSIVE = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "divf")
"""Operations of the special-function units"""


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one launch, all programs together; masks are ignored, so borders count in full."""

    matrix_flops: Mapping[str, int]
    """operations of `tt.dot` by element type ("f16", "i8", "f32"); a multiply-add counts two"""
    vector_flops: int
    """floating-point operations on tensors besides"""
    special: int
    """of them exponentials, logarithms, roots and divisions"""
    read_bytes: int
    """that loads ask for, before any cache"""
    written_bytes: int
    trips: int
    """trip count of the innermost loop that runs most often, 1 without a loop"""


def work_of(ttir: str, launch: Launch) -> Work:
    """The work of a kernel from its TTIR text."""
    matrix: dict[str, int] = {}
    vector = special = read = written = 0
    trips = 1
    for visit in visits(parse_module(ttir), launch):
        operation, times = visit.operation, visit.times * launch.programs
        trips = max(trips, visit.times)
        if operation.name == "tt.dot":
            element, count = _dot(operation)
            matrix[element] = matrix.get(element, 0) + count * times
        elif operation.name in _ACCESSES:
            moved = _access_bytes(operation) * times
            read, written = (
                (read + moved, written) if operation.name == "tt.load" else (read, written + moved)
            )
        elif (count := _vector_operations(operation)) > 0:
            vector += count * times
            special += count * times if operation.name.split(".")[-1] in _EXPENSIVE else 0
    return Work(matrix, vector, special, read, written, trips)


def _dot(operation: Operation) -> tuple[str, int]:
    left, right = (operand.type for operand in operation.operands[:2])
    return left.element.name, 2 * math.prod(left.shape) * right.shape[-1]


def _access_bytes(operation: Operation) -> int:
    where = operation.operands[0].type
    element = where.element
    bits = element.pointee.element.bits if isinstance(element, PointerType) else 32
    return math.prod(where.shape) * max(1, bits // 8)


def _vector_operations(operation: Operation) -> int:
    """Elements that a floating-point operation works on."""
    dialect, _, name = operation.name.partition(".")
    if name == "reduce":
        return math.prod(operation.operands[0].type.shape)
    floats = dialect == "math" or (dialect == "arith" and name.endswith("f"))
    if not floats or name in ("extf", "truncf") or not operation.results:
        return 0
    result = operation.results[0].type
    return math.prod(result.shape) if result.shape else 0
