"""Layer norm and RMS norm over rows that are held in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.families.normalization import EPSILON
from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.rows import ROW_PARAMETERS, row_grid, row_width
from tirgym.kernels_suite.triton.source import TritonSource


@triton.jit
def layernorm(
    x_ptr, gamma_ptr, beta_ptr, out_ptr, m, n, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < m) & (column < n)
    index = row * n + column
    x = tl.load(x_ptr + index, mask=inside, other=0.0)
    mean = tl.sum(x, axis=1, keep_dims=True) / n
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / n
    gamma = tl.load(gamma_ptr + column, mask=column < n, other=0.0)
    beta = tl.load(beta_ptr + column, mask=column < n, other=0.0)
    tl.store(out_ptr + index, centred * tl.rsqrt(variance + epsilon) * gamma + beta, mask=inside)


@triton.jit
def rmsnorm(x_ptr, gamma_ptr, out_ptr, m, n, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < m) & (column < n)
    index = row * n + column
    x = tl.load(x_ptr + index, mask=inside, other=0.0)
    square = tl.sum(x * x, axis=1, keep_dims=True) / n
    gamma = tl.load(gamma_ptr + column, mask=column < n, other=0.0)
    tl.store(out_ptr + index, x * tl.rsqrt(square + epsilon) * gamma, mask=inside)


def _epsilon(_: Shape) -> dict[str, float]:
    return {"epsilon": EPSILON}


LAYERNORM = TritonSource(layernorm, ROW_PARAMETERS, row_grid, constants=row_width, scalars=_epsilon)
RMSNORM = TritonSource(rmsnorm, ROW_PARAMETERS, row_grid, constants=row_width, scalars=_epsilon)
