"""Rotary position embedding (Su et al., arXiv:2104.09864), the two halves of a head as pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Shape, Values
from tirgym.kernels_suite.parameters import of_dims

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_rope(shape: Shape) -> PrimFunc:
    """out = x cos + rotated sin: x and out (tokens, heads, 2 half) float16, cos and sin (tokens, half)."""
    from tvm import te, tirx

    tokens, heads, half = shape["tokens"], shape["heads"], shape["half"]
    x = te.placeholder((tokens, heads, 2 * half), "float16", "x")
    cos, sin = (te.placeholder((tokens, half), "float32", name) for name in ("cos", "sin"))

    def turned(t: Any, h: Any, i: Any) -> Any:
        j = i % half
        low, high = x[t, h, j].astype("float32"), x[t, h, j + half].astype("float32")
        first = low * cos[t, j] - high * sin[t, j]
        second = high * cos[t, j] + low * sin[t, j]
        return tirx.Select(i < half, first, second).astype("float16")

    out = te.compute((tokens, heads, 2 * half), turned, "out")
    return te.create_prim_func([x, cos, sin, out])


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """Each pair (x[…, i], x[…, i + half]) turned by its angle."""
    low, high = np.split(x, 2, axis=2)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate((low * cos - high * sin, high * cos + low * sin), axis=2)


def rope_scale(x: Array, cos: Array, sin: Array) -> Array:
    """|x cos| + |rotated sin|."""
    low, high = np.split(np.abs(x), 2, axis=2)
    cos, sin = np.abs(cos)[:, None, :], np.abs(sin)[:, None, :]
    return np.concatenate((low * cos + high * sin, high * cos + low * sin), axis=2)


_COEFFICIENT = Values(tiny=0.5, huge=1.0, decades=0.5, infinities=())

ROPE = Kernel(
    name="rope",
    family="rotary",
    build=build_rope,
    reference=rope,
    scale=rope_scale,
    values={"cos": _COEFFICIENT, "sin": _COEFFICIENT},
    dtype="float16",
    accumulator="float32",
    train=(
        {"tokens": 4096, "heads": 32, "half": 64},
        {"tokens": 8192, "heads": 16, "half": 32},
        {"tokens": 2048, "heads": 64, "half": 64},
    ),
    holdout=(
        {"tokens": 127, "heads": 3, "half": 31},
        {"tokens": 65, "heads": 5, "half": 17},
        {"tokens": 1, "heads": 1, "half": 1},
    ),
    tiny={"tokens": 6, "heads": 3, "half": 10},
    parameters=of_dims(
        "float16",
        x="tokens heads 2*half",
        cos="tokens half float32",
        sin="tokens half float32",
        out="tokens heads 2*half",
    ),
    terms=lambda _: 1,
)
