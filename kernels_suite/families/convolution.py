"""Convolutions of one image in float32, channels first, without bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_conv1d(shape: Shape) -> PrimFunc:
    """out[o, i] = sum x[c, i + p] weight[o, c, p]: x (c, n), weight (o, c, k), no padding."""
    from tvm import te

    c, n, o, k = shape["c"], shape["n"], shape["o"], shape["k"]
    x = te.placeholder((c, n), "float32", "x")
    weight = te.placeholder((o, c, k), "float32", "weight")
    s, p = te.reduce_axis((0, c), "s"), te.reduce_axis((0, k), "p")
    out = te.compute(
        (o, n - k + 1), lambda f, i: te.sum(x[s, i + p] * weight[f, s, p], axis=[s, p]), "out"
    )
    return te.create_prim_func([x, weight, out])


def conv1d(x: Array, weight: Array) -> Array:
    """Valid cross-correlation."""
    windows = sliding_window_view(x, weight.shape[2], axis=1)
    out: Array = np.einsum("cip,ocp->oi", windows, weight, optimize=True)
    return out


CONV1D = Kernel(
    name="conv1d",
    family="convolution",
    build=build_conv1d,
    reference=conv1d,
    scale=of_absolute(conv1d),
    train=(
        {"c": 24, "n": 482, "o": 40, "k": 3},
        {"c": 12, "n": 1004, "o": 20, "k": 5},
        {"c": 32, "n": 256, "o": 32, "k": 3},
    ),
    holdout=(
        {"c": 7, "n": 131, "o": 11, "k": 3},
        {"c": 5, "n": 65, "o": 17, "k": 2},
        {"c": 1, "n": 3, "o": 1, "k": 1},
    ),
    tiny={"c": 3, "n": 18, "o": 4, "k": 3},
)


def build_conv2d_with(stride: int, padded: bool) -> Callable[[Shape], PrimFunc]:
    """`build` for x (c, h, w), weight (o, c, k, k); `padded` keeps h and w for odd k."""

    def build(shape: Shape) -> PrimFunc:
        from tvm import te, tirx

        c, h, w, o, k = (shape[name] for name in ("c", "h", "w", "o", "k"))
        x = te.placeholder((c, h, w), "float32", "x")
        weight = te.placeholder((o, c, k, k), "float32", "weight")
        source, around = x, 0
        if padded:
            around, zero = k // 2, tirx.const(0.0, "float32")
            source = te.compute(
                (c, h + 2 * around, w + 2 * around),
                lambda s, i, j: tirx.if_then_else(
                    tirx.all(i >= around, i < h + around, j >= around, j < w + around),
                    x[s, i - around, j - around],
                    zero,
                ),
                "padded",
            )
        s = te.reduce_axis((0, c), "s")
        p, q = te.reduce_axis((0, k), "p"), te.reduce_axis((0, k), "q")
        size = o, (h + 2 * around - k) // stride + 1, (w + 2 * around - k) // stride + 1
        out = te.compute(
            size,
            lambda f, i, j: te.sum(
                source[s, i * stride + p, j * stride + q] * weight[f, s, p, q], axis=[s, p, q]
            ),
            "out",
        )
        return te.create_prim_func([x, weight, out])

    return build


def conv2d(x: Array, weight: Array, stride: int = 1) -> Array:
    """Valid cross-correlation: x (c, h, w), weight (o, c, k, k)."""
    windows = sliding_window_view(x, weight.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
    out: Array = np.einsum("cijpq,ocpq->oij", windows, weight, optimize=True)
    return out


def conv2d_strided(x: Array, weight: Array) -> Array:
    """Every second window in both directions."""
    return conv2d(x, weight, stride=2)


def conv2d_padded(x: Array, weight: Array) -> Array:
    """k // 2 zeros around x."""
    around = weight.shape[2] // 2
    return conv2d(np.pad(x, ((0, 0), (around, around), (around, around))), weight)


HOLDOUT_2D = (
    {"c": 5, "h": 13, "w": 17, "o": 7, "k": 3},
    {"c": 3, "h": 15, "w": 9, "o": 9, "k": 5},
    {"c": 1, "h": 5, "w": 4, "o": 1, "k": 1},
)
TINY_2D = {"c": 2, "h": 8, "w": 10, "o": 4, "k": 3}

CONV2D = Kernel(
    name="conv2d",
    family="convolution",
    build=build_conv2d_with(stride=1, padded=False),
    reference=conv2d,
    scale=of_absolute(conv2d),
    train=(
        {"c": 12, "h": 30, "w": 50, "o": 24, "k": 3},
        {"c": 6, "h": 44, "w": 60, "o": 10, "k": 5},
        {"c": 16, "h": 34, "w": 34, "o": 16, "k": 3},
    ),
    holdout=HOLDOUT_2D,
    tiny=TINY_2D,
)

CONV2D_STRIDED = Kernel(
    name="conv2d_strided",
    family="convolution",
    build=build_conv2d_with(stride=2, padded=False),
    reference=conv2d_strided,
    scale=of_absolute(conv2d_strided),
    train=(
        {"c": 12, "h": 57, "w": 97, "o": 24, "k": 3},
        {"c": 6, "h": 84, "w": 100, "o": 10, "k": 5},
        {"c": 16, "h": 65, "w": 65, "o": 16, "k": 3},
    ),
    holdout=HOLDOUT_2D,
    tiny=TINY_2D,
)

CONV2D_PADDED = Kernel(
    name="conv2d_padded",
    family="convolution",
    build=build_conv2d_with(stride=1, padded=True),
    reference=conv2d_padded,
    scale=of_absolute(conv2d_padded),
    # TVM folds 0 * w to 0 where unrolling makes the padding a constant, which an infinite w shows.
    values={"weight": Values(infinities=())},
    train=(
        {"c": 12, "h": 28, "w": 48, "o": 24, "k": 3},
        {"c": 6, "h": 40, "w": 56, "o": 10, "k": 5},
        {"c": 16, "h": 32, "w": 32, "o": 16, "k": 3},
    ),
    holdout=HOLDOUT_2D,
    tiny=TINY_2D,
)
