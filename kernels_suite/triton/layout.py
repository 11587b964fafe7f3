"""Transpose of a matrix, tile by tile: both sides are read and written along rows."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta


@triton.jit
def transpose(x_ptr, out_ptr, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row[:, None] < m) & (column[None, :] < n)
    x = tl.load(x_ptr + row[:, None] * n + column[None, :], mask=inside)
    there = out_ptr + column[:, None] * m + row[None, :]
    tl.store(there, tl.trans(x), mask=(column[:, None] < n) & (row[None, :] < m))


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return triton.cdiv(shape["m"], config["BLOCK_M"]), triton.cdiv(shape["n"], config["BLOCK_N"])


TRANSPOSE = TritonSource(
    transpose,
    (
        meta("BLOCK_M", 16, 32, 64, 128, default=64),
        meta("BLOCK_N", 16, 32, 64, 128, default=64),
        meta("num_warps", 1, 2, 4, 8, default=4),
        meta("num_stages", 1, default=1),
    ),
    _grid,
)
