"""Prefix sums in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Kernel, Shape
from tirgym.kernels_suite.scales import of_absolute

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

CHUNK = 16


def build_cumsum(shape: Shape) -> PrimFunc:
    """out[i, j] = sum of x[i, k] over k <= j, row by row, in chunks of 16 columns.

    A sequential scan block reads what it wrote, so TensorIR would let nobody reorder, vectorize
    or fuse it. This form is reductions alone, n (16 + n / 16^2) additions a row: the sum of each
    chunk, the sum of the chunks before it, and the sum within the chunk up to j.
    """
    from tvm import te, tirx

    m, n = shape["m"], shape["n"]
    chunks, zero = -(-n // CHUNK), tirx.const(0.0, "float32")
    x = te.placeholder((m, n), "float32", "x")
    k, s = te.reduce_axis((0, CHUNK), "k"), te.reduce_axis((0, CHUNK), "s")
    b = te.reduce_axis((0, chunks), "b")
    grid = m, chunks, CHUNK
    part = te.compute(
        grid,
        lambda i, c, p: tirx.if_then_else(c * CHUNK + p < n, x[i, c * CHUNK + p], zero),
        "part",
    )
    total = te.compute(grid[:2], lambda i, c: te.sum(part[i, c, k], axis=k), "total")
    before = te.compute(
        grid[:2], lambda i, c: te.sum(tirx.Select(b < c, total[i, b], zero), axis=b), "before"
    )
    within = te.compute(
        grid, lambda i, c, p: te.sum(tirx.Select(s <= p, part[i, c, s], zero), axis=s), "within"
    )
    out = te.compute(
        (m, n),
        lambda i, j: before[i, j // CHUNK] + within[i, j // CHUNK, j % CHUNK],
        "out",
    )
    return te.create_prim_func([x, out])


CUMSUM = Kernel(
    name="cumsum",
    family="scan",
    build=build_cumsum,
    reference=lambda x: np.cumsum(x, axis=1),
    scale=of_absolute(lambda x: np.cumsum(x, axis=1)),
    train=({"m": 104, "n": 496}, {"m": 300, "n": 208}, {"m": 128, "n": 512}),
    holdout=({"m": 31, "n": 257}, {"m": 17, "n": 127}, {"m": 3, "n": 1}),
    tiny={"m": 4, "n": 40},
)
