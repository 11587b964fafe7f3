"""Two-layer perceptrons in float32: with GELU, and gated with SiLU (SwiGLU)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite import activations
from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = (
    {"m": 40, "d": 112, "f": 208},
    {"m": 24, "d": 104, "f": 304},
    {"m": 32, "d": 128, "f": 128},
)
HOLDOUT = ({"m": 17, "d": 61, "f": 67}, {"m": 7, "d": 65, "f": 33}, {"m": 1, "d": 1, "f": 3})
TINY = {"m": 4, "d": 10, "f": 12}


def build_mlp(shape: Shape) -> PrimFunc:
    """out = gelu(x w1 + b1) w2 + b2: x and out are (m, d), the hidden layer has f units."""
    from tvm import te

    m, d, f = shape["m"], shape["d"], shape["f"]
    x = te.placeholder((m, d), "float32", "x")
    w1, b1 = te.placeholder((d, f), "float32", "w1"), te.placeholder((f,), "float32", "b1")
    w2, b2 = te.placeholder((f, d), "float32", "w2"), te.placeholder((d,), "float32", "b2")
    r, s = te.reduce_axis((0, d), "r"), te.reduce_axis((0, f), "s")
    up = te.compute((m, f), lambda i, j: te.sum(x[i, r] * w1[r, j], axis=r), "up")
    moved = te.compute((m, f), lambda i, j: up[i, j] + b1[j], "moved")
    hidden = te.compute(
        (m, f),
        lambda i, j: moved[i, j] * activations.sigmoid(activations.gelu_argument(moved[i, j])),
        "hidden",
    )
    down = te.compute((m, d), lambda i, j: te.sum(hidden[i, s] * w2[s, j], axis=s), "down")
    out = te.compute((m, d), lambda i, j: down[i, j] + b2[j], "out")
    return te.create_prim_func([x, w1, b1, w2, b2, out])


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    """x (m, d), w1 (d, f), b1 (f,), w2 (f, d), b2 (d,) → (m, d)."""
    out: Array = activations.gelu(x @ w1 + b1) @ w2 + b2
    return out


def mlp_scale(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    """The absolute terms of both layers: |gelu(t)| <= |t|."""
    x, w1, b1, w2, b2 = (np.abs(a) for a in (x, w1, b1, w2, b2))
    out: Array = (x @ w1 + b1) @ w2 + b2
    return out


MLP = Kernel(
    name="mlp",
    family="mlp",
    build=build_mlp,
    reference=mlp,
    scale=mlp_scale,
    values={
        # the argument of the exponential stays moderate
        "x": Values(decades=0.5),
        "w1": Values(huge=2.0**-24, decades=0.5),
        "b1": Values(huge=1.0, decades=0.5),
    },
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_swiglu(shape: Shape) -> PrimFunc:
    """out = (silu(x wg) * (x wu)) wd: x and out are (m, d), the hidden layer has f units."""
    from tvm import te

    m, d, f = shape["m"], shape["d"], shape["f"]
    x = te.placeholder((m, d), "float32", "x")
    wg, wu = (te.placeholder((d, f), "float32", name) for name in ("wg", "wu"))
    wd = te.placeholder((f, d), "float32", "wd")
    r, t, s = te.reduce_axis((0, d), "r"), te.reduce_axis((0, d), "t"), te.reduce_axis((0, f), "s")
    gate = te.compute((m, f), lambda i, j: te.sum(x[i, r] * wg[r, j], axis=r), "gate")
    up = te.compute((m, f), lambda i, j: te.sum(x[i, t] * wu[t, j], axis=t), "up")
    hidden = te.compute(
        (m, f), lambda i, j: gate[i, j] * activations.sigmoid(gate[i, j]) * up[i, j], "hidden"
    )
    out = te.compute((m, d), lambda i, j: te.sum(hidden[i, s] * wd[s, j], axis=s), "out")
    return te.create_prim_func([x, wg, wu, wd, out])


def swiglu(x: Array, wg: Array, wu: Array, wd: Array) -> Array:
    """x (m, d), wg and wu (d, f), wd (f, d) → (m, d)."""
    out: Array = (activations.silu(x @ wg) * (x @ wu)) @ wd
    return out


def swiglu_scale(x: Array, wg: Array, wu: Array, wd: Array) -> Array:
    """The absolute terms of all three products: |silu(t)| <= |t|."""
    x, wg, wu, wd = (np.abs(a) for a in (x, wg, wu, wd))
    out: Array = ((x @ wg) * (x @ wu)) @ wd
    return out


SWIGLU = Kernel(
    name="swiglu",
    family="mlp",
    build=build_swiglu,
    reference=swiglu,
    scale=swiglu_scale,
    values={"x": Values(decades=0.5), "wg": Values(huge=2.0**-24, decades=0.5)},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
