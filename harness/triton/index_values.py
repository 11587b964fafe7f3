"""What integers and addresses are in the first program of a launch, on its first way through each loop.

Index arithmetic depends on sizes and program numbers alone, so it can be worked out without data:
that gives trip counts of loops, and which addresses the threads of a warp ask for together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.triton.executor.ir import Module, Operation, Region
from tirgym.harness.triton.executor.types import PointerType, TensorType
from tirgym.kernels_suite.triton.source import Launch

__all__ = ["Visit", "visits"]

Known = NDArray[np.int64] | None
"""Value of an integer, pointer (bytes from its tensor's start) or flag; None if it depends on data"""


@dataclass(frozen=True, slots=True)
class Visit:
    """One operation with what is known when it first runs."""

    operation: Operation
    times: int
    """how often one program runs it: the product of the trip counts around it"""
    values: Mapping[int, Known]
    """number of a value → what is known of it, for everything before this operation"""
    roots: Mapping[int, str]
    """number of a pointer → name of the tensor that it points into"""


def visits(module: Module, launch: Launch) -> Iterator[Visit]:
    """Every operation of the kernel in program order; what `scf.if` guards counts as taken."""
    function = module.function()
    values: dict[int, Known] = {}
    roots: dict[int, str] = {}
    passed = [a for a in launch.arguments if a.type != "constexpr"]
    for parameter, argument in zip(function.arguments, passed, strict=False):
        if argument.is_pointer:
            roots[parameter.number] = str(argument.value)
            values[parameter.number] = np.zeros((), np.int64)
        elif argument.type == "i32":
            values[parameter.number] = np.asarray(int(argument.value), np.int64)
    yield from _region(function.body, 1, values, roots)


def _region(
    region: Region, times: int, values: dict[int, Known], roots: dict[int, str]
) -> Iterator[Visit]:
    for block in region.blocks:
        for operation in block.operations:
            yield Visit(operation, times, values, roots)
            inner = times
            if operation.name == "scf.for":
                inner *= _enter_loop(operation, values, roots)
            for body in operation.regions if operation.name.startswith("scf.") else ():
                yield from _region(body, inner, values, roots)
            _evaluate(operation, values, roots)


def _enter_loop(operation: Operation, values: dict[int, Known], roots: dict[int, str]) -> int:
    """Bind the arguments of a loop's body for its first trip; its trip count, 1 if unknown."""
    low, high, step = (values.get(v.number) for v in operation.operands[:3])
    induction, *carried = operation.regions[0].entry.arguments
    values[induction.number] = low
    for argument, initial in zip(carried, operation.operands[3:], strict=False):
        values[argument.number] = values.get(initial.number)
        if initial.number in roots:
            roots[argument.number] = roots[initial.number]
    if low is None or high is None or step is None or int(step) <= 0:
        return 1
    return max(0, math.ceil((int(high) - int(low)) / int(step)))


def _evaluate(operation: Operation, values: dict[int, Known], roots: dict[int, str]) -> None:
    rule = _RULES.get(operation.name)
    for result in operation.results:
        values[result.number] = None
    root = next((roots[v.number] for v in operation.operands if v.number in roots), None)
    if root is not None:
        for result in operation.results:
            if isinstance(result.type.element, PointerType):
                roots[result.number] = root
    if rule is None or len(operation.results) != 1:
        return
    known = [values.get(v.number) for v in operation.operands]
    if any(value is None for value in known):
        return
    made = rule(operation, known)
    values[operation.results[0].number] = None if made is None else np.asarray(made, np.int64)


Rule = Callable[[Operation, list[Any]], Any]


def _constant(operation: Operation, _: list[Any]) -> Any:
    element = operation.results[0].type.element
    if isinstance(element, PointerType) or element.is_float:
        return None
    text = operation.header.removeprefix("dense<").removesuffix(">")
    words = {"true": 1, "false": 0}
    if text not in words and not re.fullmatch(r"-?\d+", text):
        return None
    return np.full(_shape(operation), words[text] if text in words else int(text), np.int64)


def _shape(operation: Operation) -> tuple[int, ...]:
    of = operation.results[0].type
    return of.shape if isinstance(of, TensorType) else ()


def _range(operation: Operation, _: list[Any]) -> Any:
    return np.arange(operation.integer("start"), operation.integer("end"))


def _add_pointer(operation: Operation, known: list[Any]) -> Any:
    element = operation.operands[0].type.element
    assert isinstance(element, PointerType)
    return known[0] + known[1] * max(1, element.pointee.element.bits // 8)


def _divide(_: Operation, known: list[Any]) -> Any:
    """Towards zero; nothing for a division by zero."""
    a, b = known
    if np.any(b == 0):
        return None
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _remainder(operation: Operation, known: list[Any]) -> Any:
    quotient = _divide(operation, known)
    return None if quotient is None else known[0] - quotient * known[1]


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal,
    "sgt": np.greater, "sge": np.greater_equal, "ult": np.less, "ule": np.less_equal,
    "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip


def _compare(operation: Operation, known: list[Any]) -> Any:
    word = operation.header.split(",")[0].strip()
    return _COMPARE[word](*known) if word in _COMPARE else None


def _transposed(operation: Operation, known: list[Any]) -> Any:
    return np.transpose(known[0], operation.integers("order"))


def _same(_: Operation, known: list[Any]) -> Any:
    return known[0]


_RULES: dict[str, Rule] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.get_program_id": lambda _, __: 0,
    "tt.splat": lambda operation, known: np.full(_shape(operation), known[0]),
    "tt.expand_dims": lambda operation, known: np.expand_dims(known[0], operation.integer("axis")),
    "tt.broadcast": lambda operation, known: np.broadcast_to(known[0], _shape(operation)),
    "tt.reshape": lambda operation, known: np.reshape(known[0], _shape(operation)),
    "tt.trans": _transposed,
    "tt.addptr": _add_pointer,
    "ttg.convert_layout": _same,
    "arith.extsi": _same,
    "arith.extui": _same,
    "arith.trunci": _same,
    "arith.index_cast": _same,
    "arith.addi": lambda _, known: known[0] + known[1],
    "arith.subi": lambda _, known: known[0] - known[1],
    "arith.muli": lambda _, known: known[0] * known[1],
    "arith.divsi": _divide,
    "arith.remsi": _remainder,
    "arith.minsi": lambda _, known: np.minimum(*known),
    "arith.maxsi": lambda _, known: np.maximum(*known),
    "arith.andi": lambda _, known: known[0] & known[1],
    "arith.ori": lambda _, known: known[0] | known[1],
    "arith.cmpi": _compare,
    "arith.select": lambda _, known: np.where(*known),
}
"""Operation → its value from those of its operands; what is not here depends on data."""
