"""Products of float16 tensors with float32 sums and a float16 result, as tensor cores make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.kernels_suite import activations
from tirgym.kernels_suite.families import attention as float32_attention
from tirgym.kernels_suite.families import matmul as float32_matmul
from tirgym.kernels_suite.families import mlp as float32_mlp
from tirgym.kernels_suite.kernel import Kernel, Shape, Values
from tirgym.kernels_suite.parameters import of_dims
from tirgym.kernels_suite.scales import of_absolute
from tirgym.kernels_suite.sizes import inverse_root

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

HALF, FLOAT = "float16", "float32"
TRAIN = (
    {"m": 4096, "n": 4096, "k": 4096},
    {"m": 1024, "n": 8192, "k": 2048},
    {"m": 2048, "n": 2048, "k": 512},
)
HOLDOUT = (
    {"m": 127, "n": 131, "k": 113},
    {"m": 65, "n": 63, "k": 129},
    {"m": 1, "n": 17, "k": 1},
)
TINY = {"m": 40, "n": 24, "k": 36}
_MODERATE = Values(decades=0.5)
_GENTLE = Values(huge=2.0**-24, decades=0.5)
"""The argument of the exponential stays moderate."""


def _gelu(x: Any) -> Any:
    return x * activations.sigmoid(activations.gelu_argument(x))


def _product(shape: Shape) -> tuple[Any, Any, Any]:
    """a (m, k), b (k, n) and the float32 sums of their product."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a, b = te.placeholder((m, k), HALF, "a"), te.placeholder((k, n), HALF, "b")
    r = te.reduce_axis((0, k), "r")
    product = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype(FLOAT) * b[r, j].astype(FLOAT), axis=r),
        "product",
    )
    return a, b, product


def build_matmul(shape: Shape) -> PrimFunc:
    """c = a b."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    a, b, product = _product(shape)
    c = te.compute((m, n), lambda i, j: product[i, j].astype(HALF), "c")
    return te.create_prim_func([a, b, c])


MATMUL = Kernel(
    name="matmul",
    family="matmul",
    build=build_matmul,
    reference=lambda a, b: a @ b,
    scale=of_absolute(lambda a, b: a @ b),
    dtype=HALF,
    accumulator=FLOAT,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    parameters=of_dims(HALF, a="m k", b="k n", c="m n"),
    terms=lambda shape: shape["k"] + 1,
)


def build_matmul_bias_gelu(shape: Shape) -> PrimFunc:
    """c = gelu(a b + bias), the bias along rows."""
    from tvm import te

    m, n = shape["m"], shape["n"]
    a, b, product = _product(shape)
    bias = te.placeholder((n,), HALF, "bias")
    moved = te.compute((m, n), lambda i, j: product[i, j] + bias[j].astype(FLOAT), "moved")
    c = te.compute((m, n), lambda i, j: _gelu(moved[i, j]).astype(HALF), "c")
    return te.create_prim_func([a, b, bias, c])


MATMUL_BIAS_GELU = Kernel(
    name="matmul_bias_gelu",
    family="matmul",
    build=build_matmul_bias_gelu,
    reference=float32_matmul.matmul_bias_gelu,
    scale=lambda a, b, bias: np.abs(a) @ np.abs(b) + np.abs(bias),
    values={"a": _MODERATE, "b": _GENTLE, "bias": Values(huge=1.0, decades=0.5)},
    dtype=HALF,
    accumulator=FLOAT,
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
    parameters=of_dims(HALF, a="m k", b="k n", bias="n", c="m n"),
    terms=lambda shape: shape["k"] + 2,
)


def build_batch_matmul(shape: Shape) -> PrimFunc:
    """c[s] = a[s] b[s] for each s of the batch."""
    from tvm import te

    batch, m, n, k = shape["batch"], shape["m"], shape["n"], shape["k"]
    a = te.placeholder((batch, m, k), HALF, "a")
    b = te.placeholder((batch, k, n), HALF, "b")
    r = te.reduce_axis((0, k), "r")
    product = te.compute(
        (batch, m, n),
        lambda s, i, j: te.sum(a[s, i, r].astype(FLOAT) * b[s, r, j].astype(FLOAT), axis=r),
        "product",
    )
    c = te.compute((batch, m, n), lambda s, i, j: product[s, i, j].astype(HALF), "c")
    return te.create_prim_func([a, b, c])


BATCH_MATMUL = Kernel(
    name="batch_matmul",
    family="batch_matmul",
    build=build_batch_matmul,
    reference=lambda a, b: a @ b,
    scale=of_absolute(lambda a, b: a @ b),
    dtype=HALF,
    accumulator=FLOAT,
    train=(
        {"batch": 32, "m": 1024, "n": 1024, "k": 64},
        {"batch": 128, "m": 256, "n": 256, "k": 256},
        {"batch": 8, "m": 512, "n": 2048, "k": 512},
    ),
    holdout=(
        {"batch": 3, "m": 31, "n": 37, "k": 41},
        {"batch": 5, "m": 17, "n": 15, "k": 33},
        {"batch": 1, "m": 1, "n": 5, "k": 1},
    ),
    tiny={"batch": 2, "m": 20, "n": 24, "k": 36},
    parameters=of_dims(HALF, a="batch m k", b="batch k n", c="batch m n"),
    terms=lambda shape: shape["k"] + 1,
)


def build_attention(shape: Shape) -> PrimFunc:
    """out = softmax(q k^T / sqrt(d)) v for each head: q, k, v and out are (heads, n, d)."""
    from tvm import te, tirx

    heads, n, d = shape["heads"], shape["n"], shape["d"]
    factor = inverse_root(d)
    q, k, v = (te.placeholder((heads, n, d), HALF, name) for name in "qkv")
    r, t, u, w = (
        te.reduce_axis((0, extent), name)
        for extent, name in ((d, "r"), (n, "t"), (n, "u"), (n, "w"))
    )
    square, whole = (heads, n, n), (heads, n, d)
    dot = te.compute(
        square,
        lambda h, i, j: te.sum(q[h, i, r].astype(FLOAT) * k[h, j, r].astype(FLOAT), axis=r),
        "dot",
    )
    score = te.compute(square, lambda h, i, j: dot[h, i, j] * factor, "score")
    top = te.compute((heads, n), lambda h, i: te.max(score[h, i, t], axis=t), "top")
    power = te.compute(square, lambda h, i, j: tirx.exp(score[h, i, j] - top[h, i]), "power")
    total = te.compute((heads, n), lambda h, i: te.sum(power[h, i, u], axis=u), "total")
    share = te.compute(square, lambda h, i, j: power[h, i, j] / total[h, i], "share")
    mixed = te.compute(
        whole, lambda h, i, j: te.sum(share[h, i, w] * v[h, w, j].astype(FLOAT), axis=w), "mixed"
    )
    out = te.compute(whole, lambda h, i, j: mixed[h, i, j].astype(HALF), "out")
    return te.create_prim_func([q, k, v, out])


ATTENTION = Kernel(
    name="attention",
    family="attention",
    build=build_attention,
    reference=float32_attention.attention,
    scale=lambda q, k, v: float32_attention.attention(q, k, np.abs(v)),
    values={"q": _MODERATE, "k": Values(huge=2.0**-20, decades=0.5)},
    dtype=HALF,
    accumulator=FLOAT,
    train=(
        {"heads": 32, "n": 2048, "d": 64},
        {"heads": 64, "n": 1024, "d": 64},
        {"heads": 16, "n": 2048, "d": 128},
    ),
    holdout=(
        {"heads": 3, "n": 67, "d": 31},
        {"heads": 2, "n": 65, "d": 33},
        {"heads": 1, "n": 1, "d": 3},
    ),
    tiny={"heads": 2, "n": 40, "d": 16},
    parameters=of_dims(HALF, q="heads n d", k="heads n d", v="heads n d", out="heads n d"),
    terms=lambda shape: shape["d"] + 3 * shape["n"] + 4,
)


def build_mlp(shape: Shape) -> PrimFunc:
    """out = gelu(x w1 + b1) w2 + b2: x and out are (m, d), the hidden layer has f units."""
    from tvm import te

    m, d, f = shape["m"], shape["d"], shape["f"]
    x = te.placeholder((m, d), HALF, "x")
    w1, b1 = te.placeholder((d, f), HALF, "w1"), te.placeholder((f,), HALF, "b1")
    w2, b2 = te.placeholder((f, d), HALF, "w2"), te.placeholder((d,), HALF, "b2")
    r, s = te.reduce_axis((0, d), "r"), te.reduce_axis((0, f), "s")
    up = te.compute(
        (m, f), lambda i, j: te.sum(x[i, r].astype(FLOAT) * w1[r, j].astype(FLOAT), axis=r), "up"
    )
    moved = te.compute((m, f), lambda i, j: up[i, j] + b1[j].astype(FLOAT), "moved")
    hidden = te.compute((m, f), lambda i, j: _gelu(moved[i, j]), "hidden")
    down = te.compute(
        (m, d), lambda i, j: te.sum(hidden[i, s] * w2[s, j].astype(FLOAT), axis=s), "down"
    )
    out = te.compute((m, d), lambda i, j: (down[i, j] + b2[j].astype(FLOAT)).astype(HALF), "out")
    return te.create_prim_func([x, w1, b1, w2, b2, out])


MLP = Kernel(
    name="mlp",
    family="mlp",
    build=build_mlp,
    reference=float32_mlp.mlp,
    scale=float32_mlp.mlp_scale,
    values={"x": _MODERATE, "w1": _GENTLE, "b1": Values(huge=1.0, decades=0.5)},
    dtype=HALF,
    accumulator=FLOAT,
    train=(
        {"m": 8192, "d": 64, "f": 256},
        {"m": 16384, "d": 32, "f": 128},
        {"m": 4096, "d": 128, "f": 512},
    ),
    holdout=({"m": 67, "d": 61, "f": 67}, {"m": 17, "d": 33, "f": 65}, {"m": 1, "d": 1, "f": 3}),
    tiny={"m": 20, "d": 16, "f": 24},
    parameters=of_dims(HALF, x="m d", w1="d f", b1="f", w2="f d", b2="d", out="m d"),
    terms=lambda shape: shape["d"] + shape["f"] + 3,
)
