"""Pooling of one image in float32, channels first: 3 by 3 windows at every second element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.lib.stride_tricks import sliding_window_view

from tirgym.kernels_suite.activations import POSITIVE_INFINITIES
from tirgym.kernels_suite.kernel import Array, Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

WINDOW, STRIDE = 3, 2
TRAIN = (
    {"c": 60, "h": 122, "w": 162},
    {"c": 24, "h": 200, "w": 250},
    {"c": 64, "h": 128, "w": 128},
)
HOLDOUT = ({"c": 7, "h": 19, "w": 31}, {"c": 3, "h": 17, "w": 33}, {"c": 1, "h": 3, "w": 3})
TINY = {"c": 3, "h": 9, "w": 13}


def pooled(shape: Shape) -> tuple[int, int, int]:
    """Shape of the output."""
    return shape["c"], (shape["h"] - WINDOW) // STRIDE + 1, (shape["w"] - WINDOW) // STRIDE + 1


def windows(x: Array) -> Array:
    """(c, i, j, 3, 3): the windows of x (c, h, w)."""
    return sliding_window_view(x, (WINDOW, WINDOW), axis=(1, 2))[:, ::STRIDE, ::STRIDE]


def build_max_pool2d(shape: Shape) -> PrimFunc:
    """out[c, i, j] = max of x[c, 2 i + p, 2 j + q] over the window."""
    from tvm import te

    x = te.placeholder((shape["c"], shape["h"], shape["w"]), "float32", "x")
    p, q = (te.reduce_axis((0, WINDOW), name) for name in "pq")
    out = te.compute(
        pooled(shape),
        lambda c, i, j: te.max(x[c, i * STRIDE + p, j * STRIDE + q], axis=[p, q]),
        "out",
    )
    return te.create_prim_func([x, out])


MAX_POOL2D = Kernel(
    name="max_pool2d",
    family="pooling",
    build=build_max_pool2d,
    reference=lambda x: windows(x).max(axis=(3, 4)),
    exact=True,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    tags=frozenset({"control"}),
)


def build_avg_pool2d(shape: Shape) -> PrimFunc:
    """out[c, i, j] = mean of x[c, 2 i + p, 2 j + q] over the window, in two stages."""
    from tvm import te, tirx

    x = te.placeholder((shape["c"], shape["h"], shape["w"]), "float32", "x")
    p, q = (te.reduce_axis((0, WINDOW), name) for name in "pq")
    total = te.compute(
        pooled(shape),
        lambda c, i, j: te.sum(x[c, i * STRIDE + p, j * STRIDE + q], axis=[p, q]),
        "total",
    )
    count = tirx.const(float(WINDOW * WINDOW), "float32")
    out = te.compute(pooled(shape), lambda c, i, j: total[c, i, j] / count, "out")
    return te.create_prim_func([x, out])


AVG_POOL2D = Kernel(
    name="avg_pool2d",
    family="pooling",
    build=build_avg_pool2d,
    reference=lambda x: windows(x).mean(axis=(3, 4)),
    scale=of_absolute(lambda x: windows(x).mean(axis=(3, 4))),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
