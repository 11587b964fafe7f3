"""Depthwise convolution of one image in float32, channels first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tirgym.kernels_suite.kernel import Array, Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_depthwise_conv2d(shape: Shape) -> PrimFunc:
    """out[c, i, j] = sum x[c, i + p, j + q] weight[c, p, q]: no padding."""
    from tvm import te

    c, h, w, k = shape["c"], shape["h"], shape["w"], shape["k"]
    x = te.placeholder((c, h, w), "float32", "x")
    weight = te.placeholder((c, k, k), "float32", "weight")
    p, q = te.reduce_axis((0, k), "p"), te.reduce_axis((0, k), "q")
    out = te.compute(
        (c, h - k + 1, w - k + 1),
        lambda s, i, j: te.sum(x[s, i + p, j + q] * weight[s, p, q], axis=[p, q]),
        "out",
    )
    return te.create_prim_func([x, weight, out])


def depthwise_conv2d(x: Array, weight: Array) -> Array:
    """Valid cross-correlation of each channel of x (c, h, w) with its filter in (c, k, k)."""
    windows = sliding_window_view(x, weight.shape[1:], axis=(1, 2))
    out: Array = np.einsum("cijpq,cpq->cij", windows, weight)
    return out


DEPTHWISE_CONV2D = Kernel(
    name="depthwise_conv2d",
    family="depthwise",
    build=build_depthwise_conv2d,
    reference=depthwise_conv2d,
    scale=of_absolute(depthwise_conv2d),
    train=(
        {"c": 24, "h": 84, "w": 100, "k": 5},
        {"c": 40, "h": 82, "w": 114, "k": 3},
        {"c": 32, "h": 66, "w": 66, "k": 3},
    ),
    holdout=(
        {"c": 7, "h": 19, "w": 31, "k": 3},
        {"c": 3, "h": 17, "w": 33, "k": 5},
        {"c": 1, "h": 2, "w": 3, "k": 1},
    ),
    tiny={"c": 3, "h": 8, "w": 12, "k": 3},
)
