"""Softmax over rows that are held in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.triton.rows import ROW_PARAMETERS, row_grid, row_width
from tirgym.kernels_suite.triton.source import TritonSource


@triton.jit
def softmax(x_ptr, out_ptr, m, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < m) & (column < n)
    index = row * n + column
    x = tl.load(x_ptr + index, mask=inside, other=-float("inf"))
    power = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    share = power / tl.sum(power, axis=1, keep_dims=True)
    tl.store(out_ptr + index, share, mask=inside)


SOFTMAX = TritonSource(softmax, ROW_PARAMETERS, row_grid, constants=row_width)
