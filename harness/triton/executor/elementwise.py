"""Steps of element-wise operations: arithmetic, comparisons, conversions, elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tirgym.harness.triton.executor.faults import uncovered
from tirgym.harness.triton.executor.ir import Operation
from tirgym.harness.triton.executor.numbers import (
    Array,
    compute_dtype,
    decode,
    encode,
    memory_dtype,
    round_tf32,
    rounding,
    unsigned,
)
from tirgym.harness.triton.executor.steps import Builder, Compile, Frame, Run, Step
from tirgym.harness.triton.executor.types import PointerType, ScalarType

__all__ = ["ELEMENTWISE"]

Function = Callable[..., Any]


def _divide(a: Array, b: Array) -> Array:
    """Integer division that truncates; 0 where the divisor is 0."""
    quotient = np.floor_divide(a, b)
    wrong = ((np.asarray(a) < 0) != (np.asarray(b) < 0)) & (quotient * b != a)
    found: Array = quotient + wrong.astype(np.asarray(quotient).dtype)
    return found


def _ceil_divide(a: Array, b: Array) -> Array:
    found: Array = -np.floor_divide(-np.asarray(a), b)
    return found


def _as_unsigned(function: Function) -> Function:
    """`function` on the bits as unsigned integers; the result has the bits of its type."""

    def apply(*values: Array) -> Array:
        found = np.asarray(function(*(unsigned(v) for v in values)))
        signed = np.asarray(values[0]).dtype
        return found.astype(np.bool_) if signed == np.bool_ else found.view(signed)

    return apply


def _high_product(a: Array, b: Array) -> Array:
    """Upper half of the product of unsigned integers."""
    bits = np.asarray(a).dtype.itemsize * 8
    if bits == 64:
        low, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
        a1, a0, b1, b0 = a >> low, a & mask, b >> low, b & mask
        middle = a1 * b0 + ((a0 * b0) >> low)
        carry = (middle & mask) + a0 * b1
        upper: Array = a1 * b1 + (middle >> low) + (carry >> low)
        return upper
    wide = np.asarray(a).astype(np.uint64) * np.asarray(b).astype(np.uint64)
    return (wide >> np.uint64(bits)).astype(np.asarray(a).dtype)


def _rsqrt(x: Array) -> Array:
    found: Array = np.asarray(x).dtype.type(1) / np.sqrt(x)
    return found


_erf = np.frompyfunc(math.erf, 1, 1)


def _apply_erf(x: Array) -> Array:
    array = np.asarray(x)
    return np.asarray(_erf(array.astype(np.float64))).astype(array.dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """One rounding: the product of float32 is exact in float64."""
    wide = np.asarray(a).astype(np.float64) * b + c
    return np.asarray(wide).astype(np.asarray(a).dtype)


def _clamp(x: Array, low: Array, high: Array) -> Array:
    found: Array = np.fmin(np.fmax(x, low), high)
    return found


def _clamp_or_nan(x: Array, low: Array, high: Array) -> Array:
    found: Array = np.minimum(np.maximum(x, low), high)
    return found


def _round(x: Array) -> Array:
    found: Array = np.copysign(np.floor(np.abs(x) + np.asarray(x).dtype.type(0.5)), x)
    return found


FUNCTIONS: dict[str, Function] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _divide,
    "arith.ceildivsi": _ceil_divide,
    "arith.floordivsi": np.floor_divide,
    "arith.remsi": np.fmod,
    "arith.divui": _as_unsigned(np.floor_divide),
    "arith.remui": _as_unsigned(np.fmod),
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": _as_unsigned(np.right_shift),
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxui": _as_unsigned(np.maximum),
    "arith.minui": _as_unsigned(np.minimum),
    "tt.mulhiui": _as_unsigned(_high_product),
    "math.absi": np.abs,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.remf": np.fmod,
    "arith.negf": np.negative,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "tt.precise_divf": np.divide,
    "tt.precise_sqrt": np.sqrt,
    "tt.clampf": _clamp,
    "math.absf": np.abs,
    "math.ceil": np.ceil,
    "math.copysign": np.copysign,
    "math.cos": np.cos,
    "math.erf": _apply_erf,
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.floor": np.floor,
    "math.fma": _fma,
    "math.log": np.log,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.log2": np.log2,
    "math.powf": np.power,
    "math.round": _round,
    "math.roundeven": np.rint,
    "math.rsqrt": _rsqrt,
    "math.sin": np.sin,
    "math.sqrt": np.sqrt,
    "math.tan": np.tan,
    "math.tanh": np.tanh,
    "math.trunc": np.trunc,
}
"""Functions of values in `compute_dtype`; results in narrow floats are rounded afterwards."""

_BOOLEAN: dict[str, Function] = {
    "arith.addi": np.logical_xor,
    "arith.subi": np.logical_xor,
    "arith.muli": np.logical_and,
    "arith.maxsi": np.logical_and,
    "arith.minsi": np.logical_or,
}
"""What the same operations do to i1, of which a true one is −1 when it is signed."""
EXACT = frozenset(
    {"arith.negf", "arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf",
     "math.absf", "tt.clampf", "math.copysign", "arith.extf", "arith.truncf", "tt.fp_to_fp"}
)  # fmt: skip
"""Float functions whose results have the precision of their type already."""
LIBRARY: dict[str, Function] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil,
    "cos": np.cos, "cosh": np.cosh, "erf": _apply_erf, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "fabs": np.abs, "floor": np.floor, "fmod": np.fmod, "hypot": np.hypot,
    "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "pow": np.power,
    "rint": np.rint, "nearbyint": np.rint, "round": _round, "rsqrt": _rsqrt, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
    "fmaxf": np.fmax, "fminf": np.fmin, "fast_exp": np.exp, "fast_log": np.log,
    "fast_tanh": np.tanh,
}  # fmt: skip
"""Functions of libdevice without the prefix "__nv_" and the suffix "f"."""


ASSEMBLY: dict[str, Function] = {"cvt.rna.tf32.f32 $0, $1;": round_tf32}
"""Inline PTX that Triton's own passes insert (`f32_dot_tc`)."""


def _function_step(function: Function, operation: Operation) -> Step:
    result = operation.results[0].number
    element = operation.results[0].type.element
    numbers = [value.number for value in operation.operands]
    narrow = isinstance(element, ScalarType) and element.is_float and element.bits < 32
    if narrow and operation.name not in EXACT:
        to_type = rounding(element)
        inner = function

        def function(*values: Array) -> Array:
            return to_type(inner(*values))

    if len(numbers) == 1:
        (a,) = numbers

        def unary(frame: Frame, run: Run) -> None:
            frame[result] = function(frame[a])

        return unary
    if len(numbers) == 2:
        a, b = numbers

        def binary(frame: Frame, run: Run) -> None:
            frame[result] = function(frame[a], frame[b])

        return binary

    def general(frame: Frame, run: Run) -> None:
        frame[result] = function(*(frame[number] for number in numbers))

    return general


def _function(operation: Operation, builder: Builder) -> Step:
    function = FUNCTIONS[operation.name]
    if operation.results[0].type.element.name == "i1":
        function = _BOOLEAN.get(operation.name, function)
    if operation.name == "tt.clampf" and operation.setting("propagateNan", "none") == "all":
        function = _clamp_or_nan
    return _function_step(function, operation)


def _library(operation: Operation, builder: Builder) -> Step:
    symbol = operation.attributes.get("symbol", "")
    name = symbol.removeprefix("__nv_")
    function = LIBRARY.get(name) or LIBRARY.get(name.removesuffix("f"))
    if function is None:
        raise uncovered(operation, f"the external function {symbol!r}")
    return _function_step(function, operation)


def _assembly(operation: Operation, builder: Builder) -> Step:
    text = operation.header.strip().partition('"')[2].partition('"')[0]
    if text not in ASSEMBLY:
        raise uncovered(operation, f"the assembly {text!r}")
    return _function_step(ASSEMBLY[text], operation)


def _ordered_unequal(a: Array, b: Array) -> Array:
    found: Array = np.less(a, b) | np.greater(a, b)
    return found


def _not(function: Function) -> Function:
    return lambda a, b: np.logical_not(function(a, b))


_SIGNED: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal,
    "sgt": np.greater, "sge": np.greater_equal,
}  # fmt: skip
_UNSIGNED: dict[str, Function] = {
    "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip
_OF_BOOLEANS = {"slt": "ugt", "sle": "uge", "sgt": "ult", "sge": "ule"}
"""A true i1 is −1 when it is signed."""
_FLOAT: dict[str, Function] = {
    "oeq": np.equal, "ogt": np.greater, "oge": np.greater_equal, "olt": np.less,
    "ole": np.less_equal, "one": _ordered_unequal, "une": np.not_equal,
    "ueq": _not(_ordered_unequal), "ugt": _not(np.less_equal), "uge": _not(np.less),
    "ult": _not(np.greater_equal), "ule": _not(np.greater),
    "ord": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "uno": lambda a, b: np.isnan(a) | np.isnan(b),
}  # fmt: skip


def _compare(operation: Operation, builder: Builder) -> Step:
    predicate = operation.header.partition(",")[0].strip()
    if operation.name == "arith.cmpf":
        table = _FLOAT
    else:
        if operation.operands[0].type.element.name == "i1":
            predicate = _OF_BOOLEANS.get(predicate, predicate)
        table = {**_SIGNED, **{p: _with_unsigned(f) for p, f in _UNSIGNED.items()}}
    if predicate not in table:
        raise uncovered(operation, f"the predicate {predicate!r}")
    return _function_step(table[predicate], operation)


def _with_unsigned(function: Function) -> Function:
    return lambda a, b: function(unsigned(a), unsigned(b))


def _select(operation: Operation, builder: Builder) -> Step:
    condition, a, b = (value.number for value in operation.operands)
    result = operation.results[0]
    number, rank = result.number, len(result.type.shape)
    spread = rank > 0 and not operation.operands[0].type.shape

    def step(frame: Frame, run: Run) -> None:
        chosen = frame[condition]
        if spread and np.ndim(chosen):
            chosen = np.reshape(chosen, (-1, *(1,) * rank))
        frame[number] = np.where(chosen, frame[a], frame[b])

    return step


# --- conversions -------------------------------------------------------------------------------


def _saturated(x: Array, dtype: np.dtype[Any]) -> Array:
    """Floats to integers as the hardware does: truncated, saturated, NaN to 0."""
    info = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(np.asarray(x).astype(np.float64)), nan=0.0)
    inside = np.clip(wide, float(info.min), float(info.max))
    found = inside.astype(dtype)
    return np.where(wide >= float(info.max), info.max, found).astype(dtype)


def _signed_value(x: Array) -> Array:
    """A true i1 is −1."""
    array = np.asarray(x)
    return -array.astype(np.int8) if array.dtype == np.bool_ else array


def _convert(operation: Operation, builder: Builder) -> Step:
    source = operation.operands[0].type.element
    target = operation.results[0].type.element
    dtype = compute_dtype(target)
    kind = operation.name.partition(".")[2]
    if kind == "trunci" and target.name == "i1":
        return _function_step(lambda x: (np.asarray(x) & 1).astype(np.bool_), operation)
    functions: dict[str, Function] = {
        "extsi": lambda x: _signed_value(x).astype(dtype),
        "extui": lambda x: unsigned(x).astype(dtype),
        "trunci": lambda x: np.asarray(x).astype(dtype),
        "index_cast": lambda x: np.asarray(x).astype(dtype),
        "index_castui": lambda x: unsigned(x).astype(dtype),
        "sitofp": lambda x: _signed_value(x).astype(np.float64).astype(dtype),
        "uitofp": lambda x: unsigned(x).astype(np.float64).astype(dtype),
        "fptosi": lambda x: _saturated(x, dtype),
        "fptoui": lambda x: _saturated(x, np.dtype(f"u{dtype.itemsize}")).view(dtype),
        "extf": lambda x: np.asarray(x).astype(dtype, copy=False),
        "truncf": rounding(target) if target.name in ("f16", "bf16", "f32", "f64") else _nothing,
        "fp_to_fp": rounding(target) if target.name in ("f16", "bf16", "f32", "f64") else _nothing,
        "ptr_to_int": lambda x: np.asarray(x).astype(dtype),
        "int_to_ptr": lambda x: np.asarray(x).astype(np.int64),
    }
    mode = operation.setting("rounding", "rtne")
    if mode != "rtne" and target.bits < source.bits:
        raise uncovered(operation, f"rounding {mode}")
    return _function_step(functions[kind], operation)


def _nothing(x: Array) -> Array:
    return x


def _bitcast(operation: Operation, builder: Builder) -> Step:
    source = operation.operands[0].type.element
    target = operation.results[0].type.element
    if isinstance(source, PointerType) or source == target:
        return _function_step(_nothing, operation)
    stored = memory_dtype(target)

    def cast(x: Array) -> Array:
        bits = np.ascontiguousarray(encode(np.asarray(x), source)).reshape(np.shape(x))
        return decode(bits.view(stored), target)

    result, operand = operation.results[0].number, operation.operands[0].number

    def step(frame: Frame, run: Run) -> None:
        frame[result] = cast(frame[operand])

    return step


ELEMENTWISE: dict[str, Compile] = {
    **dict.fromkeys(FUNCTIONS, _function),
    "tt.extern_elementwise": _library,
    "tt.elementwise_inline_asm": _assembly,
    "arith.cmpi": _compare,
    "arith.cmpf": _compare,
    "arith.select": _select,
    **dict.fromkeys(
        (
            "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast",
            "arith.index_castui", "arith.sitofp", "arith.uitofp", "arith.fptosi",
            "arith.fptoui", "arith.extf", "arith.truncf", "tt.fp_to_fp", "tt.ptr_to_int",
            "tt.int_to_ptr",
        ),
        _convert,
    ),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
}  # fmt: skip
"""Operation → how it is compiled."""
