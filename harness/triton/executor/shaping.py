"""Steps that make, move, multiply and reduce tensors: constants, splats, dots, reductions, scans."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tirgym.errors import DamagedFileError
from tirgym.harness.triton.executor.faults import uncovered
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.numbers import (
    Array,
    compute_dtype,
    decode,
    memory_dtype,
    rounding,
    truncate_tf32,
)
from tirgym.harness.triton.executor.steps import Body, Builder, Compile, Frame, Run, Step, full
from tirgym.harness.triton.executor.types import PointerType, ScalarType

__all__ = ["SHAPING", "dot_product"]


def _constant_step(operation: Operation, value: Any) -> Step:
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = value

    return step


def _number(text: str, element: ScalarType | PointerType) -> Any:
    """One literal: true, 3, -1.5e+00, or the bits of a float in hexadecimal."""
    dtype = compute_dtype(element)
    if text in ("true", "false"):
        return dtype.type(text == "true")
    if text.startswith("0x"):
        stored = memory_dtype(element)
        bits = np.array([int(text, 16)], f"u{stored.itemsize}").view(stored)
        return decode(bits, element)[0]
    number = float(text) if element.is_float else int(text)
    if not element.is_float and dtype.kind != "b":
        return np.array([number]).astype(dtype)[0]
    made = dtype.type(number)
    return rounding(element)(np.asarray(made)).reshape(())[()] if element.bits < 32 else made


def _constant(operation: Operation, builder: Builder) -> Step:
    of = operation.results[0].type
    text = operation.header
    element = of.element
    found = re.fullmatch(r"dense<(.*)>", text)
    if found is None:
        return _constant_step(operation, _number(text, element))
    inner = found[1]
    if inner.startswith('"'):
        raise uncovered(operation, "a constant of raw bytes")
    if not inner.startswith("["):
        value = _number(inner, element)
        return _constant_step(operation, np.full((1,) * len(of.shape), value))
    values = [_number(part, element) for part in re.findall(r"[^\[\],\s]+", inner)]
    if len(values) != int(np.prod(of.shape)):
        where = f"line {operation.line}: {len(values)} values for {of}"
        raise DamagedFileError("<text>", "Triton IR text", where)
    array = np.array(values, compute_dtype(element)).reshape(of.shape)
    return _constant_step(operation, array)


def _poison(operation: Operation, builder: Builder) -> Step:
    of = operation.results[0].type
    dtype = compute_dtype(of.element)
    value = np.nan if dtype.kind == "f" else 0
    return _constant_step(operation, np.full((1,) * len(of.shape), value, dtype)[()])


def _range(operation: Operation, builder: Builder) -> Step:
    start, end = operation.integer("start"), operation.integer("end")
    return _constant_step(operation, np.arange(start, end, dtype=np.int32))


_AXES = {"x": 0, "y": 1, "z": 2}


def _program_id(operation: Operation, builder: Builder) -> Step:
    axis, result = _AXES[operation.header.strip()], operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = run.ids[axis]

    return step


def _programs(operation: Operation, builder: Builder) -> Step:
    axis, result = _AXES[operation.header.strip()], operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = np.int32(run.grid[axis])

    return step


Moved = Callable[[Array, int], Array]
"""Result from an operand that is whole in every axis, and its number of leading axes."""


def _moving_step(operation: Operation, move: Moved, whole: bool = True) -> Step:
    result, operand = operation.results[0].number, operation.operands[0].number
    shape = operation.operands[0].type.shape
    rank = len(shape)

    def step(frame: Frame, run: Run) -> None:
        value = np.asarray(frame[operand])
        if whole:
            value = full(value, shape)
        frame[result] = move(value, value.ndim - rank)

    return step


def _splat(operation: Operation, builder: Builder) -> Step:
    ones = (1,) * len(operation.results[0].type.shape)
    return _moving_step(operation, lambda x, lead: x.reshape(x.shape + ones), whole=False)


def _unsplat(operation: Operation, builder: Builder) -> Step:
    return _moving_step(operation, lambda x, lead: x.reshape(x.shape[:lead])[()], whole=False)


def _same(operation: Operation, builder: Builder) -> Step:
    result, operand = operation.results[0].number, operation.operands[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = frame[operand]

    return step


def _expand(operation: Operation, builder: Builder) -> Step:
    axis = operation.integer("axis")
    return _moving_step(operation, lambda x, lead: np.expand_dims(x, axis + lead), whole=False)


def _reshape(operation: Operation, builder: Builder) -> Step:
    shape = operation.results[0].type.shape
    return _moving_step(operation, lambda x, lead: x.reshape(x.shape[:lead] + shape))


def _transpose(operation: Operation, builder: Builder) -> Step:
    order = operation.integers("order")

    def move(x: Array, lead: int) -> Array:
        return x.transpose((*range(lead), *(axis + lead for axis in order)))

    return _moving_step(operation, move, whole=False)


def _join(operation: Operation, builder: Builder) -> Step:
    a, b = (value.number for value in operation.operands)
    shape, result = operation.operands[0].type.shape, operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        both = np.broadcast_arrays(full(frame[a], shape), full(frame[b], shape))
        frame[result] = np.stack(both, axis=-1)

    return step


def _split(operation: Operation, builder: Builder) -> Step:
    operand, shape = operation.operands[0].number, operation.operands[0].type.shape
    first, second = (value.number for value in operation.results)

    def step(frame: Frame, run: Run) -> None:
        value = full(frame[operand], shape)
        frame[first], frame[second] = value[..., 0], value[..., 1]

    return step


def _concatenate(operation: Operation, builder: Builder) -> Step:
    a, b = operation.operands
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        one, two = full(frame[a.number], a.type.shape), full(frame[b.number], b.type.shape)
        if one.ndim != two.ndim:
            raise uncovered(operation, "a concatenation of values of one and of all programs")
        frame[result] = np.concatenate([one, two], axis=-1)

    return step


def _gather(operation: Operation, builder: Builder) -> Step:
    source, index = operation.operands
    axis = operation.integer("axis") - len(source.type.shape)
    result = operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        values = full(frame[source.number], source.type.shape)
        places = full(frame[index.number], index.type.shape)
        rank = max(values.ndim, places.ndim)
        values, places = (
            np.broadcast_to(x, (1,) * (rank - x.ndim) + x.shape) for x in (values, places)
        )
        if len(values) != len(places) and rank > len(source.type.shape):
            count = max(len(values), len(places))
            values, places = (np.broadcast_to(x, (count, *x.shape[1:])) for x in (values, places))
        inside = np.clip(places, 0, values.shape[axis] - 1)
        frame[result] = np.take_along_axis(values, inside, axis)

    return step


def _histogram(operation: Operation, builder: Builder) -> Step:
    operand, result = operation.operands[0], operation.results[0]
    (bins,) = result.type.shape
    mask = operation.operands[1] if len(operation.operands) > 1 else None

    def count(values: Array, keep: Array | None) -> Array:
        chosen = values if keep is None else values[keep]
        chosen = chosen[(chosen >= 0) & (chosen < bins)]
        return np.bincount(chosen, minlength=bins).astype(compute_dtype(result.type.element))

    def step(frame: Frame, run: Run) -> None:
        values = full(frame[operand.number], operand.type.shape)
        keep = None if mask is None else full(frame[mask.number], operand.type.shape)
        if values.ndim == 1 and (keep is None or keep.ndim == 1):
            frame[result.number] = count(values, keep)
            return
        rows = np.broadcast_to(values, (run.programs, *operand.type.shape))
        keeps = None if keep is None else np.broadcast_to(keep, rows.shape)
        frame[result.number] = np.stack(
            [count(row, None if keeps is None else keeps[i]) for i, row in enumerate(rows)]
        )

    return step


# --- products ----------------------------------------------------------------------------------

Product = Callable[[Array, Array, Any], Array]
"""a @ b + c, where c is None for zero."""


_ONE_THREAD = 1 << 18
"""Multiplications up to which OpenBLAS stays on the thread that called it."""


def _matmul(a: Array, b: Array) -> Array:
    """np.matmul in slices of rows that one thread does: threads cost more than they give here, and
    with one thread the same product has the same bits everywhere."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    size = max(1, _ONE_THREAD // (inner * columns))
    if size >= rows or rows % size:
        whole: Array = np.matmul(a, b)
        return whole
    slices = a.reshape(*a.shape[:-2], rows // size, size, inner)
    sliced: Array = np.matmul(slices, b[..., None, :, :])
    return sliced.reshape(*sliced.shape[:-3], rows, columns)


def dot_product(operation: Operation, element: ScalarType | PointerType) -> Product:
    """The product that `operation` computes from operands of `element` type, rounded to its result.

    Floats are multiplied in float32 (float64 for f64) and accumulated there; tf32 mode drops the low
    bits of float32 operands, and its sums of three products count as float32.
    """
    target = operation.results[0].type.element
    result = compute_dtype(target)
    mode = operation.setting("inputPrecision", "ieee")
    if result.kind == "i":

        def whole(a: Array, b: Array, c: Any) -> Array:
            exact = _matmul(a.astype(np.float64), b.astype(np.float64))
            product: Array = exact.astype(np.int64).astype(result)
            return product if c is None else np.add(product, c)

        return whole
    tf32 = element.name == "f32" and mode in ("tf32", "0")
    to_type = rounding(target) if target.bits < 32 else None

    def product(a: Array, b: Array, c: Any) -> Array:
        if tf32:
            a, b = truncate_tf32(a), truncate_tf32(b)
        found: Array = _matmul(a, b)
        if c is not None:
            found = found + c
        return found if to_type is None else to_type(found)

    return product


def _dot(operation: Operation, builder: Builder) -> Step:
    a, b, c = operation.operands[:3]
    product = dot_product(operation, a.type.element)
    a_shape, b_shape, result = a.type.shape, b.type.shape, operation.results[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = product(
            full(frame[a.number], a_shape), full(frame[b.number], b_shape), frame[c.number]
        )

    return step


# --- reductions and scans ----------------------------------------------------------------------

_REDUCING: dict[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.mulf": np.multiply,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.addi": np.add,
    "arith.muli": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}


def _single(operation: Operation) -> np.ufunc | None:
    """The function of a body that is one operation on its two arguments; None for any other."""
    body = operation.regions[0].entry
    if len(operation.operands) != 1 or len(body.operations) != 2:
        return None
    inner, element = body.operations[0], operation.operands[0].type.element
    if element.name == "i1" or (element.is_float and element.bits < 32):
        return None
    same = set(inner.operands) == set(body.arguments) and len(inner.operands) == 2
    returned = body.operations[1].operands == inner.results
    return _REDUCING.get(inner.name) if same and returned else None


def _combined(body: Body, frame: Frame, run: Run, left: list[Any], right: list[Any]) -> list[Any]:
    for number, value in zip(body.arguments, [*left, *right], strict=True):
        frame[number] = value
    return body.run(frame, run)


def _reduce(operation: Operation, builder: Builder) -> Step:
    axis = operation.integer("axis")
    shape = operation.operands[0].type.shape
    operands = [value.number for value in operation.operands]
    results = [value.number for value in operation.results]
    axis -= len(shape)
    ufunc = _single(operation)
    if ufunc is not None:
        (operand,), (result,) = operands, results
        dtype = compute_dtype(operation.results[0].type.element)

        def reduce(frame: Frame, run: Run) -> None:
            frame[result] = ufunc.reduce(full(frame[operand], shape), axis=axis, dtype=dtype)

        return reduce
    body = builder.body(operation.regions[0])

    def step(frame: Frame, run: Run) -> None:
        values = [np.moveaxis(full(frame[n], shape), axis, -1) for n in operands]
        values = list(np.broadcast_arrays(*values)) if len(values) > 1 else values
        while values[0].shape[-1] > 1:
            count = values[0].shape[-1] & ~1
            left = [v[..., 0:count:2] for v in values]
            right = [v[..., 1:count:2] for v in values]
            rest = [v[..., count:] for v in values]
            values = [np.asarray(v) for v in _combined(body, frame, run, left, right)]
            if rest[0].shape[-1]:
                values = [np.concatenate(v, axis=-1) for v in zip(values, rest, strict=True)]
        for number, value in zip(results, values, strict=True):
            frame[number] = value[..., 0]

    return step


def _scan(operation: Operation, builder: Builder) -> Step:
    shape = operation.operands[0].type.shape
    axis = operation.integer("axis") - len(shape)
    reverse = operation.attributes.get("reverse", "false") == "true"
    operands = [value.number for value in operation.operands]
    results = [value.number for value in operation.results]
    ufunc, body = _single(operation), builder.body(operation.regions[0])

    def scanned(frame: Frame, run: Run, values: list[Array]) -> list[Array]:
        if ufunc is not None:
            return [ufunc.accumulate(values[0], axis=-1, dtype=values[0].dtype)]
        found = [np.array(v) for v in values]
        for place in range(1, found[0].shape[-1]):
            left = [v[..., place - 1] for v in found]
            right = [v[..., place] for v in values]
            for whole, value in zip(found, _combined(body, frame, run, left, right), strict=True):
                whole[..., place] = value
        return found

    def step(frame: Frame, run: Run) -> None:
        values = [np.moveaxis(full(frame[n], shape), axis, -1) for n in operands]
        values = list(np.broadcast_arrays(*values)) if len(values) > 1 else values
        if reverse:
            values = [v[..., ::-1] for v in values]
        for number, value in zip(results, scanned(frame, run, values), strict=True):
            frame[number] = np.moveaxis(value[..., ::-1] if reverse else value, -1, axis)

    return step


SHAPING: dict[str, Compile] = {
    "arith.constant": _constant,
    "ub.poison": _poison,
    "tt.make_range": _range,
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _programs,
    "tt.splat": _splat,
    "tt.unsplat": _unsplat,
    "tt.broadcast": _same,
    "tt.expand_dims": _expand,
    "tt.reshape": _reshape,
    "tt.trans": _transpose,
    "tt.join": _join,
    "tt.split": _split,
    "tt.cat": _concatenate,
    "tt.gather": _gather,
    "tt.histogram": _histogram,
    "tt.dot": _dot,
    "tt.reduce": _reduce,
    "tt.scan": _scan,
    "ttg.convert_layout": _same,
}
"""Operation → how it is compiled."""
