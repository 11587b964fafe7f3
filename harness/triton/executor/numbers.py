"""Numbers of Triton IR in NumPy: which arrays hold them, how they are rounded and stored.

Floats narrower than 32 bits are computed with as float32 arrays whose values are all exact in the
narrow type: one operation in float32 and one rounding equal the narrow operation, since float32 has
more than twice the digits. In memory they have their own bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.triton.executor.types import OpaqueType, PointerType, ScalarType, Type

__all__ = [
    "Array",
    "compute_dtype",
    "decode",
    "encode",
    "is_covered",
    "memory_dtype",
    "poison_of",
    "round_bfloat16",
    "round_tf32",
    "rounding",
    "truncate_tf32",
    "unsigned",
]

Array = NDArray[Any]

_COMPUTE: dict[str, type[np.generic]] = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
    "f16": np.float32,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
}
_MEMORY: dict[str, type[np.generic]] = {**_COMPUTE, "f16": np.float16, "bf16": np.uint16}
_UNSIGNED = {np.dtype(f"i{n}"): np.dtype(f"u{n}") for n in (1, 2, 4, 8)}


def is_covered(of: Type) -> bool:
    """Whether values of this type can be held: fp8 and other exotic floats cannot."""
    element = of.element
    if isinstance(of, OpaqueType) or isinstance(element, PointerType):
        return True
    return element.name in _COMPUTE


def compute_dtype(element: ScalarType | PointerType) -> np.dtype[Any]:
    """dtype of arrays that values are computed in; pointers are int64 addresses."""
    return np.dtype(np.int64 if isinstance(element, PointerType) else _COMPUTE[element.name])


def memory_dtype(element: ScalarType | PointerType) -> np.dtype[Any]:
    """dtype of the same values in memory."""
    return np.dtype(np.int64 if isinstance(element, PointerType) else _MEMORY[element.name])


def round_bfloat16(x: Array) -> Array:
    """float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))
    rounded &= np.uint32(0xFFFF0000)
    made = rounded.view(np.float32)
    nan = np.isnan(x)
    return np.where(nan, np.float32(np.nan), made) if nan.any() else made


def _round_float16(x: Array) -> Array:
    return np.asarray(x).astype(np.float16).astype(np.float32)


def _round_float32(x: Array) -> Array:
    return np.asarray(x).astype(np.float32)


def _round_float64(x: Array) -> Array:
    return np.asarray(x).astype(np.float64)


_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "f16": _round_float16,
    "bf16": lambda x: round_bfloat16(np.asarray(x, np.float32)).reshape(np.shape(x)),
    "f32": _round_float32,
    "f64": _round_float64,
}


def rounding(element: ScalarType | PointerType) -> Callable[[Array], Array]:
    """The function that rounds float arrays to `element`, into its `compute_dtype`."""
    return _ROUNDING[element.name]


def decode(stored: Array, element: ScalarType | PointerType) -> Array:
    """Values in `compute_dtype` from values in `memory_dtype`."""
    if element.name == "bf16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if element.name == "f16":
        return stored.astype(np.float32)
    return stored


def encode(values: Array, element: ScalarType | PointerType) -> Array:
    """Values in `memory_dtype` from values in `compute_dtype`."""
    if element.name == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)
        return bits.astype(np.uint16).reshape(np.shape(values))
    return np.asarray(values).astype(memory_dtype(element), copy=False)


def truncate_tf32(x: Array) -> Array:
    """float32 without its lowest 13 bits, as tensor cores read it in tf32 mode."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def round_tf32(x: Array) -> Array:
    """float32 rounded to 10 fraction bits, ties away from zero (PTX cvt.rna.tf32)."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def unsigned(values: Array) -> Array:
    """The same bits as unsigned integers; booleans become uint8."""
    array = np.asarray(values)
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    return array.view(_UNSIGNED[array.dtype])


def poison_of(element: ScalarType | PointerType) -> Any:
    """What undefined values hold: NaN, or alternating bits."""
    dtype = compute_dtype(element)
    if dtype.kind == "f":
        return dtype.type(np.nan)
    if dtype.kind == "b":
        return np.bool_(True)
    return np.frombuffer(b"\x55" * dtype.itemsize, dtype)[0]
