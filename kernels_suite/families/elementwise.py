"""Elementwise and broadcast kernels over an (m, n) float32 matrix.

GELU and SiLU compute their exponential by a series (`activations.exp_stages`), since a
library call per element would leave nothing to schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite import activations
from tirgym.kernels_suite.activations import POSITIVE_INFINITIES
from tirgym.kernels_suite.kernel import Array, Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 800, "n": 880}, {"m": 240, "n": 2960}, {"m": 512, "n": 512})
HOLDOUT = ({"m": 127, "n": 509}, {"m": 65, "n": 33}, {"m": 1, "n": 1})
TINY = {"m": 12, "n": 20}


def build_add(shape: Shape) -> PrimFunc:
    """out = a + b."""
    from tvm import te

    size = shape["m"], shape["n"]
    a, b = (te.placeholder(size, "float32", name) for name in "ab")
    out = te.compute(size, lambda i, j: a[i, j] + b[i, j], "out")
    return te.create_prim_func([a, b, out])


ADD = Kernel(
    name="add",
    family="elementwise",
    build=build_add,
    reference=lambda a, b: a + b,
    scale=of_absolute(lambda a, b: a + b),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    tags=frozenset({"control"}),
)


def build_relu(shape: Shape) -> PrimFunc:
    """out = max(x, 0)."""
    from tvm import te, tirx

    size = shape["m"], shape["n"]
    x = te.placeholder(size, "float32", "x")
    zero = tirx.const(0.0, "float32")
    out = te.compute(size, lambda i, j: tirx.max(x[i, j], zero), "out")
    return te.create_prim_func([x, out])


RELU = Kernel(
    name="relu",
    family="elementwise",
    build=build_relu,
    reference=lambda x: np.maximum(x, 0),
    exact=True,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    tags=frozenset({"control"}),
)


def build_gelu(shape: Shape) -> PrimFunc:
    """out = x / (1 + exp(-2 u)), the tanh form of GELU, in six stages."""
    from tvm import te, tirx

    size, one = (shape["m"], shape["n"]), tirx.const(1.0, "float32")
    x = te.placeholder(size, "float32", "x")
    argument = te.compute(size, lambda i, j: -activations.gelu_argument(x[i, j]), "argument")
    power = activations.exp_stages(argument)
    out = te.compute(size, lambda i, j: x[i, j] / (one + power[i, j]), "out")
    return te.create_prim_func([x, out])


GELU = Kernel(
    name="gelu",
    family="elementwise",
    build=build_gelu,
    reference=activations.gelu,
    scale=np.abs,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_silu(shape: Shape) -> PrimFunc:
    """out = x / (1 + exp(-x)), in six stages."""
    from tvm import te, tirx

    size, one = (shape["m"], shape["n"]), tirx.const(1.0, "float32")
    x = te.placeholder(size, "float32", "x")
    power = activations.exp_stages(te.compute(size, lambda i, j: -x[i, j], "argument"))
    out = te.compute(size, lambda i, j: x[i, j] / (one + power[i, j]), "out")
    return te.create_prim_func([x, out])


SILU = Kernel(
    name="silu",
    family="elementwise",
    build=build_silu,
    reference=activations.silu,
    scale=np.abs,
    values={"x": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_bias_gelu(shape: Shape) -> PrimFunc:
    """out = gelu(x + bias), the bias along rows, in seven stages."""
    from tvm import te, tirx

    size, one = (shape["m"], shape["n"]), tirx.const(1.0, "float32")
    x = te.placeholder(size, "float32", "x")
    bias = te.placeholder(size[1:], "float32", "bias")
    moved = te.compute(size, lambda i, j: x[i, j] + bias[j], "moved")
    argument = te.compute(size, lambda i, j: -activations.gelu_argument(moved[i, j]), "argument")
    power = activations.exp_stages(argument)
    out = te.compute(size, lambda i, j: moved[i, j] / (one + power[i, j]), "out")
    return te.create_prim_func([x, bias, out])


BIAS_GELU = Kernel(
    name="bias_gelu",
    family="elementwise",
    build=build_bias_gelu,
    reference=lambda x, bias: activations.gelu(x + bias),
    scale=of_absolute(lambda x, bias: x + bias),
    values={"x": POSITIVE_INFINITIES, "bias": POSITIVE_INFINITIES},
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_scale_shift(shape: Shape) -> PrimFunc:
    """out = x factor + offset, factor by row and offset by column, in two stages."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    factor = te.placeholder((m,), "float32", "factor")
    offset = te.placeholder((n,), "float32", "offset")
    scaled = te.compute((m, n), lambda i, j: x[i, j] * factor[i], "scaled")
    out = te.compute((m, n), lambda i, j: scaled[i, j] + offset[j], "out")
    return te.create_prim_func([x, factor, offset, out])


def scale_shift(x: Array, factor: Array, offset: Array) -> Array:
    """x (m, n), factor (m,), offset (n,) → (m, n)."""
    out: Array = x * factor[:, None] + offset
    return out


SCALE_SHIFT = Kernel(
    name="scale_shift",
    family="elementwise",
    build=build_scale_shift,
    reference=scale_shift,
    scale=of_absolute(scale_shift),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
