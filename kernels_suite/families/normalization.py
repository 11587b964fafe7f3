"""Normalisations in float32: layer norm, RMS norm, batch norm at inference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.sizes import float32

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

EPSILON = 1e-5
TRAIN = ({"m": 248, "n": 496}, {"m": 60, "n": 1008}, {"m": 256, "n": 512})
HOLDOUT = ({"m": 31, "n": 257}, {"m": 65, "n": 127}, {"m": 3, "n": 1})
TINY = {"m": 6, "n": 20}


def build_layernorm(shape: Shape) -> PrimFunc:
    """out = (x - mean) / sqrt(variance + 1e-5) gamma + beta, over the rows of x (m, n)."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    count, epsilon = float32(n), tirx.const(EPSILON, "float32")
    x = te.placeholder((m, n), "float32", "x")
    gamma, beta = (te.placeholder((n,), "float32", name) for name in ("gamma", "beta"))
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), "total")
    centred = te.compute((m, n), lambda i, j: x[i, j] - total[i] / count, "centred")
    square = te.compute((m,), lambda i: te.sum(centred[i, r] * centred[i, r], axis=r), "square")
    out = te.compute(
        (m, n),
        lambda i, j: centred[i, j] * tirx.rsqrt(square[i] / count + epsilon) * gamma[j] + beta[j],
        "out",
    )
    return te.create_prim_func([x, gamma, beta, out])


def layernorm(x: Array, gamma: Array, beta: Array) -> Array:
    """Rows of x (m, n) to mean 0 and variance 1, then scaled and moved by gamma and beta (n,)."""
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
    out: Array = centred / deviation * gamma + beta
    return out


def layernorm_scale(x: Array, gamma: Array, beta: Array) -> Array:
    """(|x| + mean |x|) / deviation |gamma| + |beta|."""
    size = np.abs(x)
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    moved = size + size.mean(axis=1, keepdims=True)
    out: Array = moved / deviation * np.abs(gamma) + np.abs(beta)
    return out


LAYERNORM = Kernel(
    name="layernorm",
    family="normalization",
    build=build_layernorm,
    reference=layernorm,
    scale=layernorm_scale,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_rmsnorm(shape: Shape) -> PrimFunc:
    """out = x / sqrt(mean(x^2) + 1e-5) gamma, over the rows of x (m, n)."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    count, epsilon = float32(n), tirx.const(EPSILON, "float32")
    x = te.placeholder((m, n), "float32", "x")
    gamma = te.placeholder((n,), "float32", "gamma")
    k = te.reduce_axis((0, n), "k")
    square = te.compute((m,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "square")
    factor = te.compute((m,), lambda i: tirx.rsqrt(square[i] / count + epsilon), "factor")
    out = te.compute((m, n), lambda i, j: x[i, j] * factor[i] * gamma[j], "out")
    return te.create_prim_func([x, gamma, out])


def rmsnorm(x: Array, gamma: Array) -> Array:
    """Rows of x (m, n) to mean square 1, then scaled by gamma (n,)."""
    out: Array = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPSILON) * gamma
    return out


RMSNORM = Kernel(
    name="rmsnorm",
    family="normalization",
    build=build_rmsnorm,
    reference=rmsnorm,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_batchnorm(shape: Shape) -> PrimFunc:
    """out = (x - mean) / sqrt(variance + 1e-5) gamma + beta, by channel of x (c, h, w)."""
    from tvm import te, tirx

    size, epsilon = (shape["c"], shape["h"], shape["w"]), tirx.const(EPSILON, "float32")
    x = te.placeholder(size, "float32", "x")
    mean, variance, gamma, beta = (
        te.placeholder(size[:1], "float32", name) for name in ("mean", "variance", "gamma", "beta")
    )
    factor = te.compute(size[:1], lambda c: gamma[c] * tirx.rsqrt(variance[c] + epsilon), "factor")
    centred = te.compute(size, lambda c, i, j: x[c, i, j] - mean[c], "centred")
    scaled = te.compute(size, lambda c, i, j: centred[c, i, j] * factor[c], "scaled")
    out = te.compute(size, lambda c, i, j: scaled[c, i, j] + beta[c], "out")
    return te.create_prim_func([x, mean, variance, gamma, beta, out])


def batchnorm(x: Array, mean: Array, variance: Array, gamma: Array, beta: Array) -> Array:
    """x (c, h, w), the others (c,)."""
    factor = gamma / np.sqrt(variance + EPSILON)
    out: Array = (x - mean[:, None, None]) * factor[:, None, None] + beta[:, None, None]
    return out


def batchnorm_scale(x: Array, mean: Array, variance: Array, gamma: Array, beta: Array) -> Array:
    """(|x| + |mean|) / deviation |gamma| + |beta|."""
    return batchnorm(np.abs(x), -np.abs(mean), variance, np.abs(gamma), np.abs(beta))


BATCHNORM_INFERENCE = Kernel(
    name="batchnorm_inference",
    family="normalization",
    build=build_batchnorm,
    reference=batchnorm,
    scale=batchnorm_scale,
    values={"variance": Values(positive=True, infinities=(math.inf,))},
    train=(
        {"c": 60, "h": 100, "w": 112},
        {"c": 100, "h": 50, "w": 72},
        {"c": 32, "h": 64, "w": 64},
    ),
    holdout=({"c": 13, "h": 31, "w": 37}, {"c": 17, "h": 15, "w": 33}, {"c": 1, "h": 1, "w": 1}),
    tiny={"c": 4, "h": 6, "w": 10},
)
