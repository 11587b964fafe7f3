"""Float expressions of TensorIR: constants, bit patterns, polynomials, values with a name.

Everything is in one element type at a time, float32 unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.tirx import Let, Select, Var

__all__ = [
    "INFINITY_BITS",
    "NAN_BITS",
    "Names",
    "bits",
    "clamped",
    "from_bits",
    "integer",
    "magnitude",
    "number",
    "series",
    "signed",
]

INFINITY_BITS = 0x7F800000
NAN_BITS = 0x7FC00000
_SIGN = -(2**31)


class Names:
    """Values that are computed once and used several times."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, Any]] = []

    def __call__(self, name: str, value: Any) -> Any:
        """A variable that stands for `value` in what is made later."""
        variable = Var(name, value.ty)
        self._made.append((variable, value))
        return variable

    def around(self, result: Any) -> Any:
        """`result` with its variables bound."""
        for variable, value in reversed(self._made):
            result = Let(variable, value, result)
        return result


def number(value: float, dtype: str = "float32") -> Any:
    """A constant."""
    return tirx.const(value, dtype)


def integer(value: int, dtype: str = "int32") -> Any:
    """A whole constant, such as a bit pattern."""
    return tirx.const(value, dtype)


def bits(value: Any) -> Any:
    """The bit pattern of a float32 as int32."""
    return tirx.reinterpret("int32", value)


def from_bits(pattern: Any) -> Any:
    """The float32 that has a bit pattern."""
    return tirx.reinterpret("float32", pattern)


def series(variable: Any, coefficients: Sequence[float], dtype: str = "float32") -> Any:
    """A polynomial by Horner's rule, the coefficient of the highest power first."""
    result = number(coefficients[0], dtype)
    for coefficient in coefficients[1:]:
        result = result * variable + number(coefficient, dtype)
    return result


def clamped(name: Names, value: Any, low: float, high: float, dtype: str = "float32") -> Any:
    """`value` within limits; NaN stays NaN, which no minimum or maximum of TensorIR promises."""
    value = name("value", value)
    value = name("below", Select(value > number(high, dtype), number(high, dtype), value))
    return name("clamped", Select(value < number(low, dtype), number(low, dtype), value))


def magnitude(x: Any) -> Any:
    """|x|"""
    return from_bits(tirx.bitwise_and(bits(x), integer(2**31 - 1)))


def signed(size: Any, x: Any) -> Any:
    """`size`, which is not negative, with the sign of x."""
    return from_bits(tirx.bitwise_or(bits(size), tirx.bitwise_and(bits(x), integer(_SIGN))))
