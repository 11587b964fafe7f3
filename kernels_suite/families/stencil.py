"""Stencils over a float32 grid; each step uses up a border."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Array, Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

TRAIN = ({"m": 800, "n": 880}, {"m": 240, "n": 2960}, {"m": 512, "n": 512})
HOLDOUT = ({"m": 127, "n": 509}, {"m": 65, "n": 33}, {"m": 1, "n": 1})
TINY = {"m": 12, "n": 20}


def build_stencil2d(shape: Shape) -> PrimFunc:
    """out (m, n): two Jacobi sweeps over x (m + 4, n + 4).

    One sweep is the mean of a point and its four neighbours.
    """
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    fifth = tirx.const(0.2, "float32")
    x = te.placeholder((m + 4, n + 4), "float32", "x")

    def sweep(a: te.Tensor, size: tuple[int, int], name: str) -> te.Tensor:
        return te.compute(
            size,
            lambda i, j: (
                fifth
                * (a[i + 1, j + 1] + a[i, j + 1] + a[i + 2, j + 1] + a[i + 1, j] + a[i + 1, j + 2])
            ),
            name,
        )

    once = sweep(x, (m + 2, n + 2), "once")
    return te.create_prim_func([x, sweep(once, (m, n), "out")])


def stencil2d(x: Array) -> Array:
    """Two sweeps of the five-point mean over the inner points."""
    for _ in range(2):
        x = (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 5.0
    return x


STENCIL2D = Kernel(
    name="stencil2d",
    family="stencil",
    build=build_stencil2d,
    reference=stencil2d,
    scale=of_absolute(stencil2d),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)


def build_blur(shape: Shape) -> PrimFunc:
    """out (m, n): 3 by 3 mean over x (m + 2, n + 2), along rows and then along columns."""
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    third = tirx.const(1.0 / 3.0, "float32")
    x = te.placeholder((m + 2, n + 2), "float32", "x")
    row = te.compute((m + 2, n), lambda i, j: (x[i, j] + x[i, j + 1] + x[i, j + 2]) * third, "row")
    out = te.compute(
        (m, n), lambda i, j: (row[i, j] + row[i + 1, j] + row[i + 2, j]) * third, "out"
    )
    return te.create_prim_func([x, out])


def blur(x: Array) -> Array:
    """Mean of each 3 by 3 window."""
    m, n = x.shape[0] - 2, x.shape[1] - 2
    windows = [x[i : i + m, j : j + n] for i in range(3) for j in range(3)]
    out: Array = np.mean(windows, axis=0)
    return out


BLUR = Kernel(
    name="blur",
    family="stencil",
    build=build_blur,
    reference=blur,
    scale=of_absolute(blur),
    train=TRAIN,
    holdout=HOLDOUT,
    tiny=TINY,
)
