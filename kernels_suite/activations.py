"""Activation functions as TE expressions, and the NumPy functions that judge them.

The two sides share no formula: GELU is the tanh form in NumPy (Hendrycks and Gimpel,
arXiv:1606.08415) and its logistic form in the IR, 0.5 (1 + tanh(u)) = sigmoid(2 u).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.kernels_suite.kernel import Array, Values

if TYPE_CHECKING:
    from tvm import te

__all__ = ["POSITIVE_INFINITIES", "exp_stages", "gelu", "gelu_argument", "sigmoid", "silu"]

POSITIVE_INFINITIES = Values(infinities=(math.inf, math.inf))
"""For kernels that take a maximum or clamp: no -inf among their inputs."""

_LN2_HIGH = 0.693359375
_LN2_LOW = _LN2_HIGH - math.log(2.0)


def exp_stages(argument: te.Tensor) -> te.Tensor:
    """exp of each element of a float32 matrix without a library call, so that it vectorizes.

    Four stages: x clamped to ±87.3; n = round(x / ln 2); f = x - n ln 2 (ln 2 in two parts, so
    that f keeps its digits), |f| <= ln(2) / 2; 2^n, through the exponent bits, times the Taylor
    series of exp(f) to degree 7 (truncation below 6e-9).
    """
    from tvm import te, tirx

    def number(value: float) -> Any:
        return tirx.const(value, "float32")

    def power(f: Any, n: Any) -> Any:
        series = number(1.0 / math.factorial(7))
        for degree in range(6, -1, -1):
            series = series * f + number(1.0 / math.factorial(degree))
        return series * tirx.reinterpret("float32", (tirx.Cast("int32", n) + 127) << 23)

    size, low, high = argument.shape, number(-87.3), number(87.3)
    log2e, half = number(1.0 / math.log(2.0)), number(0.5)
    ln2_high, ln2_low = number(_LN2_HIGH), number(_LN2_LOW)
    x = te.compute(size, lambda i, j: tirx.max(tirx.min(argument[i, j], high), low), "clamped")
    n = te.compute(size, lambda i, j: tirx.floor(x[i, j] * log2e + half), "whole")
    f = te.compute(size, lambda i, j: x[i, j] - n[i, j] * ln2_high + n[i, j] * ln2_low, "fraction")
    return te.compute(size, lambda i, j: power(f[i, j], n[i, j]), "power")


def gelu_argument(x: Any) -> Any:
    """2 u with u = sqrt(2 / pi) (x + 0.044715 x^3): gelu(x) = x sigmoid(2 u)."""
    from tvm import tirx

    slope = tirx.const(2.0 * math.sqrt(2.0 / math.pi), "float32")
    cubic = tirx.const(0.044715, "float32")
    return slope * (x + cubic * x * x * x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) with the library's exp."""
    from tvm import tirx

    one = tirx.const(1.0, "float32")
    return one / (one + tirx.exp(-x))


def gelu(x: Array) -> Array:
    """GELU in its tanh form, in NumPy."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    out: Array = 0.5 * x * (1.0 + np.tanh(inner))
    return out


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)), in NumPy."""
    out: Array = x / (1.0 + np.exp(-x))
    return out
