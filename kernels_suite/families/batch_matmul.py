"""Batched matrix product in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirgym.kernels_suite.kernel import Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_batch_matmul(shape: Shape) -> PrimFunc:
    """c[s] = a[s] b[s] for each s of the batch."""
    from tvm import te

    batch, m, n, k = shape["batch"], shape["m"], shape["n"], shape["k"]
    a = te.placeholder((batch, m, k), "float32", "a")
    b = te.placeholder((batch, k, n), "float32", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((batch, m, n), lambda s, i, j: te.sum(a[s, i, r] * b[s, r, j], axis=r), "c")
    return te.create_prim_func([a, b, c])


BATCH_MATMUL = Kernel(
    name="batch_matmul",
    family="batch_matmul",
    build=build_batch_matmul,
    reference=lambda a, b: a @ b,
    scale=of_absolute(lambda a, b: a @ b),
    train=(
        {"batch": 6, "m": 60, "n": 80, "k": 72},
        {"batch": 20, "m": 24, "n": 40, "k": 48},
        {"batch": 8, "m": 64, "n": 64, "k": 64},
    ),
    holdout=(
        {"batch": 3, "m": 31, "n": 37, "k": 41},
        {"batch": 5, "m": 17, "n": 15, "k": 33},
        {"batch": 1, "m": 1, "n": 5, "k": 1},
    ),
    tiny={"batch": 2, "m": 6, "n": 10, "k": 12},
)
