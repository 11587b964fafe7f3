"""Data movement in float32: every output element is a copy of an input element, or zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Regime, Shape, Tensor
from tirgym.kernels_suite.regimes import default_inputs

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 800, "n": 880}, {"m": 240, "n": 2960}, {"m": 512, "n": 512})
HOLDOUT = ({"m": 127, "n": 509}, {"m": 65, "n": 33}, {"m": 1, "n": 1})
TINY = {"m": 12, "n": 20}


def build_transpose(shape: Shape) -> PrimFunc:
    """out[j, i] = x[i, j]: x (m, n)."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    x = te.placeholder((m, n), "float32", "x")
    out = te.compute((n, m), lambda j, i: x[i, j], "out")
    return te.create_prim_func([x, out])


TRANSPOSE = Kernel(
    name="transpose",
    family="layout",
    build=build_transpose,
    reference=lambda x: x.T,
    exact=True,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_permute(shape: Shape) -> PrimFunc:
    """out[i, j, c] = x[c, i, j]: channels first to channels last, x (c, h, w)."""
    from tvm import te

    c, h, w = shape["c"], shape["h"], shape["w"]
    x = te.placeholder((c, h, w), "float32", "x")
    out = te.compute((h, w, c), lambda i, j, s: x[s, i, j], "out")
    return te.create_prim_func([x, out])


PERMUTE = Kernel(
    name="permute",
    family="layout",
    build=build_permute,
    reference=lambda x: x.transpose(1, 2, 0),
    exact=True,
    train=(
        {"c": 32, "h": 60, "w": 112},
        {"c": 24, "h": 100, "w": 120},
        {"c": 64, "h": 64, "w": 64},
    ),
    holdout=({"c": 17, "h": 31, "w": 37}, {"c": 33, "h": 15, "w": 65}, {"c": 1, "h": 1, "w": 3}),
    tiny={"c": 4, "h": 6, "w": 10},
)


def build_pad(shape: Shape) -> PrimFunc:
    """out (m + 4, n + 6) is x (m, n) with 2 rows and 3 columns of zeros on each side."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    zero = tirx.const(0.0, "float32")
    x = te.placeholder((m, n), "float32", "x")
    out = te.compute(
        (m + 4, n + 6),
        lambda i, j: tirx.if_then_else(
            tirx.all(i >= 2, i < m + 2, j >= 3, j < n + 3), x[i - 2, j - 3], zero
        ),
        "out",
    )
    return te.create_prim_func([x, out])


PAD = Kernel(
    name="pad",
    family="layout",
    build=build_pad,
    reference=lambda x: np.pad(x, ((2, 2), (3, 3))),
    exact=True,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    tags=frozenset({"control"}),
)


def build_concat(shape: Shape) -> PrimFunc:
    """out (m, n + k) is a (m, n) and b (m, k) side by side."""
    from tvm import te, tirx

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, n), "float32", "a")
    b = te.placeholder((m, k), "float32", "b")
    out = te.compute((m, n + k), lambda i, j: tirx.if_then_else(j < n, a[i, j], b[i, j - n]), "out")
    return te.create_prim_func([a, b, out])


CONCAT = Kernel(
    name="concat",
    family="layout",
    build=build_concat,
    reference=lambda a, b: np.concatenate((a, b), axis=1),
    exact=True,
    train=(
        {"m": 320, "n": 352, "k": 528},
        {"m": 3000, "n": 36, "k": 60},
        {"m": 512, "n": 256, "k": 256},
    ),
    holdout=({"m": 127, "n": 257, "k": 131}, {"m": 65, "n": 15, "k": 33}, {"m": 1, "n": 1, "k": 1}),
    tiny={"m": 12, "n": 8, "k": 14},
)


def build_gather(shape: Shape) -> PrimFunc:
    """out[i, j] = x[index[i], j]: x (rows, n), index (m,) int32 within [0, rows)."""
    from tvm import te

    rows, m, n = shape["rows"], shape["m"], shape["n"]
    x = te.placeholder((rows, n), "float32", "x")
    index = te.placeholder((m,), "int32", "index")
    out = te.compute((m, n), lambda i, j: x[index[i], j], "out")
    return te.create_prim_func([x, index, out])


def gather_inputs(shape: Shape, rng: np.random.Generator, regime: Regime) -> tuple[Array, ...]:
    """Values by regime, and indices over the whole range."""
    rows, m, n = shape["rows"], shape["m"], shape["n"]
    (x,) = default_inputs((Tensor("x", (rows, n), "float32"),), rng, regime)
    return x, rng.integers(0, rows, m, dtype=np.int32)


GATHER = Kernel(
    name="gather",
    family="layout",
    build=build_gather,
    reference=lambda x, index: x[index],
    inputs=gather_inputs,
    exact=True,
    train=(
        {"rows": 900, "m": 800, "n": 880},
        {"rows": 900, "m": 3000, "n": 100},
        {"rows": 512, "m": 512, "n": 512},
    ),
    holdout=(
        {"rows": 131, "m": 127, "n": 257},
        {"rows": 33, "m": 65, "n": 17},
        {"rows": 1, "m": 3, "n": 1},
    ),
    tiny={"rows": 10, "m": 12, "n": 14},
    tags=frozenset({"control"}),
)
