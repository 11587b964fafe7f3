"""Matrix products with float32 accumulation: C (m, n) from a contraction over k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirgym.kernels_suite.kernel import Kernel, Shape

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = (
    {"m": 250, "n": 264, "k": 240},
    {"m": 120, "n": 200, "k": 500},
    {"m": 128, "n": 128, "k": 128},
    {"m": 256, "n": 256, "k": 256},
)
HOLDOUT = (
    {"m": 127, "n": 131, "k": 113},
    {"m": 65, "n": 63, "k": 129},
    {"m": 1, "n": 17, "k": 1},
)
TINY = {"m": 10, "n": 12, "k": 14}


def build_matmul(shape: Shape) -> PrimFunc:
    """c = a b."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "float32", "a")
    b = te.placeholder((k, n), "float32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "c")
    return te.create_prim_func([a, b, c])


MATMUL = Kernel(
    name="matmul",
    family="matmul",
    build=build_matmul,
    reference=lambda a, b: a @ b,
    scale=lambda a, b: abs(a) @ abs(b),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
