"""Matrix products by tiles: float16 with float32 sums, batched, with epilogue, and int8.

Programs that share rows of a and columns of b run close to each other: GROUP_M tiles of rows at a
time, as in Triton's matrix multiplication tutorial.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.elementwise import gelu_of
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta


@triton.jit
def tile_of(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of the output tile of program `pid`."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = (pid // in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    return first + (pid % in_group) % height, (pid % in_group) // height


@triton.jit
def product_tile(
    a_ptr, b_ptr, row, column, m, n, k, BLOCK_K: tl.constexpr, ACCUMULATOR: tl.constexpr
):
    """sum over k of a[row, :] b[:, column], outside the matrices as zeros."""
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + row[:, None] * k + inner[None, :]
    b = b_ptr + inner[:, None] * n + column[None, :]
    total = tl.zeros((row.shape[0], column.shape[0]), dtype=ACCUMULATOR)
    for first in range(0, k, BLOCK_K):
        left = k - first
        x = tl.load(a, mask=(row[:, None] < m) & (inner[None, :] < left), other=0)
        y = tl.load(b, mask=(inner[:, None] < left) & (column[None, :] < n), other=0)
        total = tl.dot(x, y, total, out_dtype=ACCUMULATOR)
        a += BLOCK_K
        b += BLOCK_K * n
    return total


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = product_tile(a_ptr, b_ptr, row, column, m, n, k, BLOCK_K, tl.float32)
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c_ptr + row[:, None] * n + column[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def matmul_bias_gelu(
    a_ptr, b_ptr, bias_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = product_tile(a_ptr, b_ptr, row, column, m, n, k, BLOCK_K, tl.float32)
    bias = tl.load(bias_ptr + column, mask=column < n, other=0.0).to(tl.float32)
    c = gelu_of(total + bias[None, :]).to(tl.float16)
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c_ptr + row[:, None] * n + column[None, :], c, mask=inside)


@triton.jit
def batch_matmul(
    a_ptr, b_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    item = tl.program_id(1).to(tl.int64)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    a, b, c = a_ptr + item * m * k, b_ptr + item * k * n, c_ptr + item * m * n
    total = product_tile(a, b, row, column, m, n, k, BLOCK_K, tl.float32)
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c + row[:, None] * n + column[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def int8_gemm(
    a_ptr, b_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = product_tile(a_ptr, b_ptr, row, column, m, n, k, BLOCK_K, tl.int32)
    inside = (row[:, None] < m) & (column[None, :] < n)
    tl.store(c_ptr + row[:, None] * n + column[None, :], total, mask=inside)


def _tiles(shape: Shape, config: Config) -> int:
    m, n = triton.cdiv(shape["m"], config["BLOCK_M"]), triton.cdiv(shape["n"], config["BLOCK_N"])
    return int(m * n)


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return (_tiles(shape, config),)


def _batch_grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return _tiles(shape, config), shape["batch"]


_PARAMETERS = (
    meta("BLOCK_M", 32, 64, 128, 256, default=128),
    meta("BLOCK_N", 32, 64, 128, 256, default=128),
    meta("BLOCK_K", 32, 64, 128, default=32),
    meta("GROUP_M", 1, 4, 8, 16, default=8),
    meta("num_warps", 2, 4, 8, 16, default=4),
    meta("num_stages", 1, 2, 3, 4, 5, default=3),
)
_SMALL_TILES = (
    meta("BLOCK_M", 16, 32, 64, 128, default=64),
    meta("BLOCK_N", 16, 32, 64, 128, default=64),
    *_PARAMETERS[2:],
)

MATMUL = TritonSource(matmul, _PARAMETERS, _grid)
MATMUL_BIAS_GELU = TritonSource(matmul_bias_gelu, _PARAMETERS, _grid)
BATCH_MATMUL = TritonSource(batch_matmul, _SMALL_TILES, _batch_grid)
INT8_GEMM = TritonSource(
    int8_gemm,
    (
        *_PARAMETERS[:2],
        meta("BLOCK_K", 32, 64, 128, 256, default=64),
        *_PARAMETERS[3:],
    ),
    _grid,
)
