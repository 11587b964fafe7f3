"""Matrix products in float32: C (m, n) from a contraction over k, and with one or few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite import activations
from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = (
    {"m": 250, "n": 264, "k": 240},
    {"m": 120, "n": 208, "k": 496},
    {"m": 128, "n": 128, "k": 128},
    {"m": 256, "n": 256, "k": 256},
)
HOLDOUT = (
    {"m": 127, "n": 131, "k": 113},
    {"m": 65, "n": 63, "k": 129},
    {"m": 1, "n": 17, "k": 1},
)
TINY = {"m": 10, "n": 12, "k": 14}


def build_matmul(shape: Shape) -> PrimFunc:
    """c = a b."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((k, n), "float32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "c")
    return te.create_prim_func([a, b, c])


MATMUL = Kernel(
    name="matmul",
    family="matmul",
    build=build_matmul,
    reference=lambda a, b: a @ b,
    scale=of_absolute(lambda a, b: a @ b),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_matmul_tn(shape: Shape) -> PrimFunc:
    """c = a^T b with a stored (k, m)."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((k, m), "float32", "a")
    b = te.placeholder((k, n), "float32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[r, i] * b[r, j], axis=r), "c")
    return te.create_prim_func([a, b, c])


MATMUL_TN = Kernel(
    name="matmul_tn",
    family="matmul",
    build=build_matmul_tn,
    reference=lambda a, b: a.T @ b,
    scale=of_absolute(lambda a, b: a.T @ b),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_matmul_nt(shape: Shape) -> PrimFunc:
    """c = a b^T with b stored (n, k)."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((n, k), "float32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), "c")
    return te.create_prim_func([a, b, c])


MATMUL_NT = Kernel(
    name="matmul_nt",
    family="matmul",
    build=build_matmul_nt,
    reference=lambda a, b: a @ b.T,
    scale=of_absolute(lambda a, b: a @ b.T),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_matvec(shape: Shape) -> PrimFunc:
    """y = a x."""
    from tvm import te

    m, k = shape["m"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    x = te.placeholder((k,), "float32", "x")
    r = te.reduce_axis((0, k), "r")
    y = te.compute((m,), lambda i: te.sum(a[i, r] * x[r], axis=r), "y")
    return te.create_prim_func([a, x, y])


MATVEC = Kernel(
    name="matvec",
    family="matmul",
    build=build_matvec,
    reference=lambda a, x: a @ x,
    scale=of_absolute(lambda a, x: a @ x),
    train=({"m": 520, "k": 624}, {"m": 1000, "k": 304}, {"m": 512, "k": 512}),
    holdout=({"m": 127, "k": 257}, {"m": 65, "k": 33}, {"m": 3, "k": 1}),
    tiny={"m": 14, "k": 18},
)


def build_skinny_matmul(shape: Shape) -> PrimFunc:
    """c = a b + d with a few rows m, in two stages."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((k, n), "float32", "b")
    d = te.placeholder((m, n), "float32", "d")
    r = te.reduce_axis((0, k), "r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "product")
    c = te.compute((m, n), lambda i, j: product[i, j] + d[i, j], "c")
    return te.create_prim_func([a, b, d, c])


SKINNY_MATMUL = Kernel(
    name="skinny_matmul",
    family="matmul",
    build=build_skinny_matmul,
    reference=lambda a, b, d: a @ b + d,
    scale=of_absolute(lambda a, b, d: a @ b + d),
    train=(
        {"m": 4, "n": 608, "k": 496},
        {"m": 6, "n": 1008, "k": 208},
        {"m": 8, "n": 512, "k": 256},
    ),
    holdout=({"m": 3, "n": 257, "k": 127}, {"m": 5, "n": 33, "k": 65}, {"m": 1, "n": 1, "k": 1}),
    tiny={"m": 3, "n": 20, "k": 14},
)


def build_matmul_bias_gelu(shape: Shape) -> PrimFunc:
    """c = gelu(a b + bias), the bias along rows, in three stages."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((k, n), "float32", "b")
    bias = te.placeholder((n,), "float32", "bias")
    r = te.reduce_axis((0, k), "r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "product")
    moved = te.compute((m, n), lambda i, j: product[i, j] + bias[j], "moved")
    c = te.compute(
        (m, n),
        lambda i, j: moved[i, j] * activations.sigmoid(activations.gelu_argument(moved[i, j])),
        "c",
    )
    return te.create_prim_func([a, b, bias, c])


def matmul_bias_gelu(a: Array, b: Array, bias: Array) -> Array:
    """a (m, k), b (k, n), bias (n,) → (m, n)."""
    return activations.gelu(a @ b + bias)


MATMUL_BIAS_GELU = Kernel(
    name="matmul_bias_gelu",
    family="matmul",
    build=build_matmul_bias_gelu,
    reference=matmul_bias_gelu,
    scale=lambda a, b, bias: np.abs(a) @ np.abs(b) + np.abs(bias),
    values={
        "a": Values(decades=0.5),
        "b": Values(huge=2.0**-24, decades=0.5),
        "bias": Values(huge=1.0, decades=0.5),
    },
    train=(
        {"m": 100, "n": 208, "k": 144},
        {"m": 60, "n": 112, "k": 304},
        {"m": 128, "n": 128, "k": 128},
    ),
    holdout=({"m": 67, "n": 61, "k": 113}, {"m": 65, "n": 63, "k": 129}, {"m": 1, "n": 17, "k": 1}),
    tiny=TINY,
)
