"""Elementwise and broadcast kernels over an (m, n) float32 matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tirgym.kernels_suite.kernel import Kernel, Shape

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 500, "n": 600}, {"m": 96, "n": 3000}, {"m": 512, "n": 512})
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
    scale=lambda a, b: abs(a) + abs(b),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
