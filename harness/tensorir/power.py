"""`power`: x^y of float32 in plain TensorIR arithmetic.

2^(y log2 x) loses as many digits as y log2 x has before its point, so it is computed in float64, as
by S. Nagy in Arm's Optimized Routines (`powf.c`, 2017), but with Taylor series in place of its
tables, which would be gathers: log2(m) = 2 / ln 2 · artanh((m - 1) / (m + 1)) and 2^r = e^(r ln 2).
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.tirx import Cast, Select

from tirgym.harness.tensorir.float_expressions import (
    INFINITY_BITS,
    NAN_BITS,
    Names,
    bits,
    clamped,
    from_bits,
    integer,
    magnitude,
    number,
    series,
)

__all__ = ["power"]

_SHIFT = 1.5 * 2.0**52
"""Its float64 neighbours are whole numbers apart."""
_SHIFT_BITS = 0x4338000000000000
_BIAS = 1023
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_LOG2 = tuple(2.0 / math.log(2.0) / (2 * k + 1) for k in reversed(range(9)))
"""log2((1 + s) / (1 - s)) / s in powers of s², for |s| < 0.172; within 2^-44."""
_EXP2 = tuple(math.log(2.0) ** k / math.factorial(k) for k in reversed(range(11)))
"""2^r for |r| <= 1/2; within 2^-40."""
_TOP = 160.0
"""2^160 and 2^-160 are beyond the range of float32."""


def _logarithm(name: Names, size: Any) -> Any:
    """log2 of a positive float64 that is a float32, in float64."""
    pattern = name("pattern", tirx.reinterpret("int64", size))
    above = name("above", (pattern - integer(_SQRT_HALF_BITS, "int64")) >> 52)
    m = name("m", tirx.reinterpret("float64", pattern - (above << 52)))
    whole = tirx.reinterpret("float64", above + integer(_SHIFT_BITS, "int64"))
    one = number(1.0, "float64")
    s = name("s", (m - one) / (m + one))
    square = name("square", s * s)
    return series(square, _LOG2, "float64") * s + (whole - number(_SHIFT, "float64"))


def _exponential(name: Names, x: Any) -> Any:
    """2^x of a float64 within ±_TOP, rounded to float32."""
    bias = number(_SHIFT + _BIAS, "float64")
    shifted = name("shifted", x + bias)
    r = name("r", x - (shifted - bias))
    scale = tirx.reinterpret("float64", tirx.reinterpret("int64", shifted) << 52)
    return Cast("float32", series(r, _EXP2, "float64") * scale)


def _parity(name: Names, y: Any) -> tuple[Any, Any]:
    """Whether y is whole, and whether it is odd. Its last bits are fractions, units and multiples."""
    pattern = name("parity", bits(y))
    exponent = name("place", tirx.bitwise_and(pattern >> 23, integer(255)))
    digits = name("digits", tirx.bitwise_and(pattern, integer(0x7FFFFF)) | integer(0x800000))
    below = tirx.Max(tirx.Min(integer(150) - exponent, integer(24)), integer(0))
    below = name("fraction", below)
    fraction = tirx.bitwise_and(digits, (integer(1) << below) - integer(1))
    whole = tirx.EQ(fraction, integer(0))
    unit = tirx.EQ(tirx.bitwise_and(digits >> below, integer(1)), integer(1))
    return whole, tirx.all(whole, unit, exponent <= integer(150))


def power(x: Any, y: Any) -> Any:
    """x^y with the special cases of the C standard (C17, F.10.4.4)."""
    name, zero, one = Names(), number(0.0), number(1.0)
    infinite, nan = from_bits(integer(INFINITY_BITS)), from_bits(integer(NAN_BITS))
    x, y = name("base", x), name("exponent", y)
    size, steep = name("size", magnitude(x)), name("steep", magnitude(y))
    whole, odd = _parity(name, y)
    logarithm = _logarithm(name, Cast("float64", size))
    product = clamped(name, Cast("float64", y) * logarithm, -_TOP, _TOP, "float64")
    result = _exponential(name, product)
    # 0 and infinity have no logarithm here, and infinite exponents ask only which side of 1 x is on
    grows = tirx.any(tirx.all(size > one, y > zero), tirx.all(size < one, y < zero))
    extreme = tirx.any(tirx.EQ(size, zero), tirx.EQ(size, infinite), tirx.EQ(steep, infinite))
    limit = Select(tirx.EQ(size, one), one, Select(grows, infinite, zero))
    result = name("result", Select(extreme, limit, result))
    negative = tirx.any(x < zero, tirx.all(tirx.EQ(size, zero), bits(x) < integer(0)))
    result = Select(tirx.all(negative, odd), -result, result)
    undefined = tirx.all(x < zero, size < infinite, steep < infinite, tirx.Not(whole))
    # the compiler takes not (a <= b) for a > b, so NaN shows in bits alone
    last = integer(INFINITY_BITS)
    result = Select(tirx.any(undefined, bits(size) > last, bits(steep) > last), nan, result)
    return name.around(Select(tirx.any(tirx.EQ(y, zero), tirx.EQ(x, one)), one, result))
