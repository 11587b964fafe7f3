"""Softmax and log-softmax over the rows of an (m, n) float32 matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.activations import POSITIVE_INFINITIES
from tirgym.kernels_suite.kernel import Array, Kernel, Shape

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 248, "n": 496}, {"m": 60, "n": 1008}, {"m": 256, "n": 512})
HOLDOUT = ({"m": 31, "n": 257}, {"m": 65, "n": 127}, {"m": 3, "n": 1})
TINY = {"m": 6, "n": 20}


def build_softmax(shape: Shape) -> PrimFunc:
    """out = exp(x - max(x)) / sum(exp(x - max(x))), row by row, in four stages."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), "top")
    power = te.compute((m, n), lambda i, j: tirx.exp(x[i, j] - top[i]), "power")
    total = te.compute((m,), lambda i: te.sum(power[i, r], axis=r), "total")
    out = te.compute((m, n), lambda i, j: power[i, j] / total[i], "out")
    return te.create_prim_func([x, out])


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    power: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    out: Array = power / power.sum(axis=-1, keepdims=True)
    return out


SOFTMAX = Kernel(
    name="softmax",
    family="softmax",
    build=build_softmax,
    reference=softmax,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_log_softmax(shape: Shape) -> PrimFunc:
    """out = x - max(x) - log(sum(exp(x - max(x)))), row by row, in six stages."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), "top")
    moved = te.compute((m, n), lambda i, j: x[i, j] - top[i], "moved")
    power = te.compute((m, n), lambda i, j: tirx.exp(moved[i, j]), "power")
    total = te.compute((m,), lambda i: te.sum(power[i, r], axis=r), "total")
    log = te.compute((m,), lambda i: tirx.log(total[i]), "log")
    out = te.compute((m, n), lambda i, j: moved[i, j] - log[i], "out")
    return te.create_prim_func([x, out])


def log_softmax(x: Array) -> Array:
    """Log-softmax over the last axis."""
    moved: Array = x - x.max(axis=-1, keepdims=True)
    out: Array = moved - np.log(np.exp(moved).sum(axis=-1, keepdims=True))
    return out


def log_softmax_scale(x: Array) -> Array:
    """|x| + max |x| + |log of the sum|."""
    size: Array = np.abs(x)
    moved: Array = x - x.max(axis=-1, keepdims=True)
    logarithm = np.log(np.exp(moved).sum(axis=-1, keepdims=True))
    out: Array = size + size.max(axis=-1, keepdims=True) + logarithm
    return out


LOG_SOFTMAX = Kernel(
    name="log_softmax",
    family="softmax",
    build=build_log_softmax,
    reference=log_softmax,
    scale=log_softmax_scale,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
