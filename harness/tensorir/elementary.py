"""Elementary functions of float32 in plain TensorIR arithmetic, so that LLVM vectorizes them.

LLVM has no vector instructions for exp, log, tanh, …: a call in a vectorized loop becomes one call
of the C library for each lane. The forms here have no call, no branch and no table, only arithmetic,
selections and bit patterns. Each is within 2 units in the last place of the exact result over all
float32 arguments, subnormal arguments and results included, with or without fused multiply-adds; it
gives the infinities, zeros and NaN of the C library, and no operation has an undefined result.

Sources: S. Moshier, Cephes Mathematical Library 2.8, single precision (`expf.c`, `exp2f.c`,
`logf.c`, `log2f.c`, `tanhf.c`); N. Juffa, "Efficient faithfully rounded implementation of error
function erff()" (Stack Overflow 35148198, 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tvm.tirx import Select

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
    signed,
)
from tirgym.harness.tensorir.power import power

__all__ = ["FORMS"]

_SHIFT = 12582912.0
"""1.5 · 2^23: its float32 neighbours are whole numbers apart, so adding it rounds to the nearest, and
leaves the number in the last bits."""
_SHIFT_BITS = 0x4B400000
_BIAS = 127
"""of the exponent bits: 2^n has n + 127"""
_SQRT_HALF_BITS = 0x3F3504F3

_LOG2_E = 1.44269504088896341
_LN2 = 0.693359375, -2.12194440e-4
"""ln 2 in two parts, the first so short that its multiples are exact (`expf.c`)."""
_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
    1.0,
)
"""(exp(f) - 1) / f for |f| <= ln(2) / 2 (`expf.c`)."""
_EXP2 = (
    1.535336188319500e-4,
    1.339887440266574e-3,
    9.618437357674640e-3,
    5.550332471162809e-2,
    2.402264791363012e-1,
    6.931472028550421e-1,
)
"""(2^f - 1) / f for |f| <= 1/2 (`exp2f.c`)."""
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
"""(log(1 + z) - z + z²/2) / z³ for sqrt(1/2) <= 1 + z < sqrt(2) (`logf.c`)."""
_LOG2_E_LESS_ONE = 0.44269504088896340735992
"""`log2f.c`"""
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
"""(tanh(x) / x - 1) / x² for |x| < 0.625 (`tanhf.c`)."""
_ERF_NEAR = (
    -5.96761703e-4,
    4.99119423e-3,
    -2.67681349e-2,
    1.12819925e-1,
    -3.76125336e-1,
    1.28379166e-1,
)
"""erf(x) / x - 1 in powers of x² for |x| <= 475/512 (Juffa)."""
_ERF_FAR = (
    -1.72853470e-5,
    3.83197126e-4,
    -3.88396438e-3,
    2.42546219e-2,
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
"""log(1 - erf(t)) / t + 1 for t > 475/512 (Juffa)."""


class _Power(NamedTuple):
    """2^exponent for a whole exponent, as code generators like it."""

    whole: Any
    """the exponent, float32"""
    bits: Any
    """int32, the exponent + 254 in the place of the exponent bits"""

    @classmethod
    def near(cls, name: Names, logarithm: Any) -> _Power:
        """The exponent nearest to a binary logarithm."""
        shifted = name("shifted", logarithm + number(_SHIFT + 2 * _BIAS))
        whole = name("whole", shifted - number(_SHIFT + 2 * _BIAS))
        return cls(whole, name("bits", bits(shifted) << 23))

    def times(self, name: Names, fraction: Any) -> Any:
        """fraction · 2^exponent, in two steps, so that it may overflow or become subnormal."""
        half = self.whole * number(0.5) + number(_SHIFT + _BIAS)
        half = name("half", bits(half) << 23)
        return fraction * from_bits(half) * from_bits(self.bits - half)

    def times_normal(self, fraction: Any) -> Any:
        """fraction · 2^exponent where 2^exponent is a normal number."""
        return fraction * from_bits(self.bits - integer(_BIAS << 23))


def _exponential(name: Names, x: Any) -> tuple[Any, _Power]:
    """exp(x) = (1 + first) · second with |first| < 0.42, for x that is clamped already."""
    scale = _Power.near(name, x * number(_LOG2_E))
    f = name("f", x - scale.whole * number(_LN2[0]) - scale.whole * number(_LN2[1]))
    return series(f, _EXP) * f, scale


def exp(x: Any) -> Any:
    """e^x: 0 below -104, infinity above 89."""
    name = Names()
    less_one, scale = _exponential(name, clamped(name, x, -104.0, 89.0))
    return name.around(scale.times(name, less_one + number(1.0)))


def exp2(x: Any) -> Any:
    """2^x: 0 below -151, infinity above 129."""
    name = Names()
    x = clamped(name, x, -151.0, 129.0)
    scale = _Power.near(name, x)
    f = name("f", x - scale.whole)
    return name.around(scale.times(name, series(f, _EXP2) * f + number(1.0)))


def _logarithm_parts(name: Names, x: Any) -> tuple[Any, Any, Any]:
    """(e, z, log(1 + z) - z) with x = 2^e (1 + z), for positive x."""
    tiny = name("tiny", Select(x < number(2.0**-126), number(23.0), number(0.0)))
    normal = name("normal", Select(x < number(2.0**-126), x * number(2.0**23), x))
    above = name("above", (bits(normal) - integer(_SQRT_HALF_BITS)) >> 23)
    z = name("z", from_bits(bits(normal) - (above << 23)) - number(1.0))
    e = name("e", from_bits(above + integer(_SHIFT_BITS)) - number(_SHIFT) - tiny)
    square = name("square", z * z)
    return e, z, series(z, _LOG) * z * square


def _of_positive(x: Any, result: Any) -> Any:
    """A logarithm: `result` where x is positive and finite, else what the C library gives."""
    infinite = from_bits(integer(INFINITY_BITS))
    minus = Select(x >= number(0.0), -infinite, from_bits(integer(NAN_BITS)))
    return Select(x > number(0.0), Select(x < infinite, result, x), minus)


def log(x: Any) -> Any:
    """ln(x)."""
    name = Names()
    x = name("argument", x)
    e, z, rest = _logarithm_parts(name, x)
    rest = rest + number(_LN2[1]) * e - number(0.5) * (z * z)
    return name.around(_of_positive(x, z + rest + e * number(_LN2[0])))


def log2(x: Any) -> Any:
    """The binary logarithm of x."""
    name = Names()
    x = name("argument", x)
    e, z, rest = _logarithm_parts(name, x)
    rest = name("rest", rest - number(0.5) * (z * z))
    factor = number(_LOG2_E_LESS_ONE)
    return name.around(_of_positive(x, rest * factor + z * factor + rest + z + e))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent: 1 - 2 / (e^2|x| + 1), a series near 0, ±1 beyond 10."""
    name = Names()
    x = name("argument", x)
    size = clamped(name, magnitude(x), 0.0, 10.0)
    one, square = number(1.0), name("square", x * x)
    less_one, scale = _exponential(name, name("doubled", size + size))
    far = signed(one - number(2.0) / (scale.times_normal(less_one + one) + one), x)
    near = series(square, _TANH) * square * x + x
    return name.around(Select(size < number(0.625), near, far))


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x), from e^-|x|, so that small results keep their digits.

    What rounding took from e^-|x| and from the denominator d is added at last, times about 1 / d.
    """
    name, one = Names(), number(1.0)
    x = name("argument", x)
    less_one, scale = _exponential(name, clamped(name, -magnitude(x), -104.0, 0.0))
    less_one = name("less_one", less_one)
    fraction = name("fraction", less_one + one)
    lost = name("lost", scale.times(name, one - fraction + less_one))
    small = name("small", scale.times(name, fraction))
    below = name("below", small + one)
    quotient = name("quotient", Select(x < number(0.0), small, one) / below)
    rest = Select(x < number(0.0), lost, number(0.0)) - quotient * (one - below + small + lost)
    return name.around(quotient + rest * (number(1.5) - below * number(0.5)))


def erf(x: Any) -> Any:
    """The error function: 1 - e^(t polynomial) beyond 475/512, a series within, ±1 beyond 4."""
    name = Names()
    x = name("argument", x)
    t = clamped(name, magnitude(x), 0.0, 4.0)
    square = name("square", x * x)
    less_one, scale = _exponential(name, name("logarithm", series(t, _ERF_FAR) * t - t))
    far = signed(number(1.0) - scale.times_normal(less_one + number(1.0)), x)
    near = series(square, _ERF_NEAR) * x + x
    return name.around(Select(t > number(475.0 / 512.0), far, near))


FORMS: Mapping[str, Callable[..., Any]] = {
    "tirx.exp": exp,
    "tirx.exp2": exp2,
    "tirx.log": log,
    "prim.log2": log2,
    "tirx.tanh": tanh,
    "tirx.sigmoid": sigmoid,
    "tirx.erf": erf,
    "tirx.pow": power,
}
"""TVM's operator → its form: a function of float32 expressions."""
