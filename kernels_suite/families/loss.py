"""Cross-entropy of rows of logits in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.activations import POSITIVE_INFINITIES
from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Shape, Tensor
from tirgym.kernels_suite.parameters import of_dims
from tirgym.kernels_suite.regimes import default_inputs

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_cross_entropy(shape: Shape) -> PrimFunc:
    """loss[i] = log(sum(exp(x[i] - max(x[i])))) + max(x[i]) - x[i, label[i]]: x (m, n)."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    label = te.placeholder((m,), "int32", "label")
    k, r = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "r")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), "top")
    power = te.compute((m, n), lambda i, j: tirx.exp(x[i, j] - top[i]), "power")
    total = te.compute((m,), lambda i: te.sum(power[i, r], axis=r), "total")
    loss = te.compute((m,), lambda i: tirx.log(total[i]) + (top[i] - x[i, label[i]]), "loss")
    return te.create_prim_func([x, label, loss])


def cross_entropy(x: Array, label: Array) -> Array:
    """x (m, n), label (m,) int32 within [0, n) → (m,)."""
    top = x.max(axis=1)
    chosen = np.take_along_axis(x, label[:, None].astype(np.int64), axis=1)[:, 0]
    loss: Array = np.log(np.exp(x - top[:, None]).sum(axis=1)) + (top - chosen)
    return loss


def cross_entropy_scale(x: Array, label: Array) -> Array:
    """log of the sum + max |x| + |x of the label|."""
    top = x.max(axis=1)
    chosen = np.take_along_axis(x, label[:, None].astype(np.int64), axis=1)[:, 0]
    logarithm: Array = np.log(np.exp(x - top[:, None]).sum(axis=1))
    scale: Array = logarithm + np.abs(x).max(axis=1) + np.abs(chosen)
    return scale


def cross_entropy_inputs(
    shape: Shape, rng: np.random.Generator, regime: Regime
) -> tuple[Array, ...]:
    """Logits by regime, labels over the whole range."""
    m, n = shape["m"], shape["n"]
    logits = Tensor("x", (m, n), "float32")
    (x,) = default_inputs((logits,), rng, regime, {"x": POSITIVE_INFINITIES})
    return x, rng.integers(0, n, m, dtype=np.int32)


CROSS_ENTROPY = Kernel(
    name="cross_entropy",
    family="loss",
    build=build_cross_entropy,
    reference=cross_entropy,
    scale=cross_entropy_scale,
    inputs=cross_entropy_inputs,
    train=({"m": 4096, "n": 32000}, {"m": 8192, "n": 8192}, {"m": 2048, "n": 50304}),
    holdout=({"m": 127, "n": 1021}, {"m": 65, "n": 33}, {"m": 3, "n": 1}),
    tiny={"m": 6, "n": 40},
    parameters=of_dims(x="m n", label="m int32", loss="m"),
    terms=lambda shape: 2 * shape["n"] + 2,
)
