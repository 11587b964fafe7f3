"""Reductions of the rows of an (m, n) float32 matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.kernels_suite.activations import POSITIVE_INFINITIES
from tirgym.kernels_suite.kernel import Array, Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute
from tirgym.kernels_suite.sizes import float32

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 520, "n": 624}, {"m": 300, "n": 1008}, {"m": 512, "n": 512})
HOLDOUT = ({"m": 127, "n": 257}, {"m": 65, "n": 1009}, {"m": 3, "n": 1})
TINY = {"m": 8, "n": 24}


def build_row_sum(shape: Shape) -> PrimFunc:
    """out[i] = sum_k x[i, k]."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k = te.reduce_axis((0, n), "k")
    out = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), "out")
    return te.create_prim_func([x, out])


ROW_SUM = Kernel(
    name="row_sum",
    family="reduction",
    build=build_row_sum,
    reference=lambda x: x.sum(axis=1),
    scale=of_absolute(lambda x: x.sum(axis=1)),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_row_max(shape: Shape) -> PrimFunc:
    """out[i] = max_k x[i, k]."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k = te.reduce_axis((0, n), "k")
    out = te.compute((m,), lambda i: te.max(x[i, k], axis=k), "out")
    return te.create_prim_func([x, out])


ROW_MAX = Kernel(
    name="row_max",
    family="reduction",
    build=build_row_max,
    reference=lambda x: x.max(axis=1),
    exact=True,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_row_mean(shape: Shape) -> PrimFunc:
    """out[i] = sum_k x[i, k] / n, in two stages."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), "total")
    count = float32(n)
    out = te.compute((m,), lambda i: total[i] / count, "out")
    return te.create_prim_func([x, out])


ROW_MEAN = Kernel(
    name="row_mean",
    family="reduction",
    build=build_row_mean,
    reference=lambda x: x.mean(axis=1),
    scale=of_absolute(lambda x: x.mean(axis=1)),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_row_variance(shape: Shape) -> PrimFunc:
    """out[i] = sum_k (x[i, k] - mean[i])^2 / n, in two passes."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    count = float32(n)
    x = te.placeholder((m, n), "float32", "x")
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), "total")
    centred = te.compute((m, n), lambda i, j: x[i, j] - total[i] / count, "centred")
    square = te.compute((m,), lambda i: te.sum(centred[i, r] * centred[i, r], axis=r), "square")
    out = te.compute((m,), lambda i: square[i] / count, "out")
    return te.create_prim_func([x, out])


def variance_scale(x: Array) -> Array:
    """Mean of (|x| + mean |x|)^2 of each row."""
    size: Array = np.abs(x)
    out: Array = ((size + size.mean(axis=1, keepdims=True)) ** 2).mean(axis=1)
    return out


ROW_VARIANCE = Kernel(
    name="row_variance",
    family="reduction",
    build=build_row_variance,
    reference=lambda x: x.var(axis=1),
    scale=variance_scale,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_row_l2norm(shape: Shape) -> PrimFunc:
    """out[i] = sqrt(sum_k x[i, k]^2), in two stages."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    k = te.reduce_axis((0, n), "k")
    square = te.compute((m,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), "square")
    out = te.compute((m,), lambda i: tirx.sqrt(square[i]), "out")
    return te.create_prim_func([x, out])


ROW_L2NORM = Kernel(
    name="row_l2norm",
    family="reduction",
    build=build_row_l2norm,
    reference=lambda x: np.sqrt((x * x).sum(axis=1)),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_argmax(shape: Shape) -> PrimFunc:
    """index[i], top[i] = argmax_k x[i, k], max_k x[i, k].

    The combiner keeps its left side on ties. A strict first-index combiner cannot be split with
    `rfactor` (TVM knows this form alone), so any index of the maximum counts: see `compare`.
    """
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]

    def combine(x: Any, y: Any) -> tuple[Any, Any]:
        left = x[1] >= y[1]
        return tirx.Select(left, x[0], y[0]), tirx.Select(left, x[1], y[1])

    def identity(index: str, value: str) -> tuple[Any, Any]:
        return tirx.const(-1, index), te.min_value(value)

    argmax = te.comm_reducer(combine, identity, name="argmax")
    x = te.placeholder((m, n), "float32", "x")
    k = te.reduce_axis((0, n), "k")
    index, top = te.compute((m,), lambda i: argmax((k.var, x[i, k]), axis=k), "index")
    return te.create_prim_func([x, index, top])


def argmax(x: Array) -> tuple[Array, Array]:
    """First index of the maximum of each row, and the maximum."""
    return x.argmax(axis=1).astype(np.int32), x.max(axis=1)


def compare_argmax(
    inputs: tuple[Array, ...], got: tuple[Array, ...], expected: tuple[Array, ...]
) -> str | None:
    """Any index of the maximum is right; the maximum must be equal."""
    (x,), (index, top), (_, best) = inputs, got, expected
    if not np.array_equal(top, best):
        row = int(np.argmax(top != best))
        return f"maximum of row {row} is {best[row]}, not {top[row]}"
    inside = (index >= 0) & (index < x.shape[1])
    found = np.take_along_axis(x, np.where(inside, index, 0)[:, None].astype(np.int64), axis=1)
    right = inside & (found[:, 0] == best)
    if not right.all():
        row = int(np.argmin(right))
        return f"index {index[row]} of row {row} is not an index of its maximum {best[row]}"
    return None


ARGMAX = Kernel(
    name="argmax",
    family="reduction",
    build=build_argmax,
    reference=argmax,
    num_outputs=2,
    exact=True,
    compare=compare_argmax,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
