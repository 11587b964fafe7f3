"""Attention forward in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.sizes import inverse_root

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_attention(shape: Shape) -> PrimFunc:
    """out = softmax(q k^T / sqrt(d)) v for each head: q, k, v and out are (heads, n, d)."""
    from tvm import te, tirx

    heads, n, d = shape["heads"], shape["n"], shape["d"]
    factor = inverse_root(d)
    q, k, v = (te.placeholder((heads, n, d), "float32", name) for name in "qkv")
    r, t, u, w = (
        te.reduce_axis((0, extent), name)
        for extent, name in ((d, "r"), (n, "t"), (n, "u"), (n, "w"))
    )
    square = heads, n, n
    dot = te.compute(square, lambda h, i, j: te.sum(q[h, i, r] * k[h, j, r], axis=r), "dot")
    score = te.compute(square, lambda h, i, j: dot[h, i, j] * factor, "score")
    top = te.compute((heads, n), lambda h, i: te.max(score[h, i, t], axis=t), "top")
    power = te.compute(square, lambda h, i, j: tirx.exp(score[h, i, j] - top[h, i]), "power")
    total = te.compute((heads, n), lambda h, i: te.sum(power[h, i, u], axis=u), "total")
    share = te.compute(square, lambda h, i, j: power[h, i, j] / total[h, i], "share")
    out = te.compute(
        (heads, n, d), lambda h, i, j: te.sum(share[h, i, w] * v[h, w, j], axis=w), "out"
    )
    return te.create_prim_func([q, k, v, out])


def attention(q: Array, k: Array, v: Array) -> Array:
    """softmax(q k^T / sqrt(d)) v, head by head."""
    score = np.einsum("hid,hjd->hij", q, k) / math.sqrt(q.shape[2])
    power = np.exp(score - score.max(axis=2, keepdims=True))
    out: Array = power / power.sum(axis=2, keepdims=True) @ v
    return out


ATTENTION = Kernel(
    name="attention",
    family="attention",
    build=build_attention,
    reference=attention,
    scale=lambda q, k, v: attention(q, k, np.abs(v)),
    values={
        # q k^T stays moderate, or its rounding errors would move the softmax by themselves
        "q": Values(decades=0.5),
        "k": Values(huge=2.0**-20, decades=0.5),
    },
    train=(
        {"heads": 4, "n": 112, "d": 48},
        {"heads": 3, "n": 96, "d": 56},
        {"heads": 4, "n": 128, "d": 32},
    ),
    holdout=(
        {"heads": 3, "n": 67, "d": 31},
        {"heads": 2, "n": 65, "d": 33},
        {"heads": 1, "n": 1, "d": 3},
    ),
    tiny={"heads": 2, "n": 10, "d": 6},
)
