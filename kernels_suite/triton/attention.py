"""Attention forward without the matrix of scores in memory (Dao, FlashAttention-2, arXiv:2307.08691)."""

from __future__ import annotations

import math

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta, next_power_of_2


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, n, d, factor,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`factor` is log2(e) / sqrt(d): scores are powers of two. WIDTH >= d is a power of two."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inner = tl.arange(0, WIDTH)
    head = tl.program_id(1).to(tl.int64) * n * d
    q_inside = (row[:, None] < n) & (inner[None, :] < d)
    q = tl.load(q_ptr + head + row[:, None] * d + inner[None, :], mask=q_inside, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for first in range(0, n, BLOCK_N):
        column = first + tl.arange(0, BLOCK_N)
        k_inside = (inner[:, None] < d) & (column[None, :] < n)
        k = tl.load(k_ptr + head + column[None, :] * d + inner[:, None], mask=k_inside, other=0.0)
        score = tl.dot(q, k) * factor
        score = tl.where(column[None, :] < n, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        power = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(power, axis=1)
        v_inside = (column[:, None] < n) & (inner[None, :] < d)
        v = tl.load(v_ptr + head + column[:, None] * d + inner[None, :], mask=v_inside, other=0.0)
        mixed = tl.dot(power.to(tl.float16), v, mixed * shrink[:, None])
        top = higher
    out = (mixed / total[:, None]).to(tl.float16)
    tl.store(out_ptr + head + row[:, None] * d + inner[None, :], out, mask=q_inside)


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return triton.cdiv(shape["n"], config["BLOCK_M"]), shape["heads"]


ATTENTION = TritonSource(
    attention,
    (
        meta("BLOCK_M", 32, 64, 128, default=128),
        meta("BLOCK_N", 16, 32, 64, 128, default=64),
        meta("num_warps", 2, 4, 8, default=4),
        meta("num_stages", 1, 2, 3, 4, default=3),
    ),
    _grid,
    constants=lambda shape: {"WIDTH": max(16, next_power_of_2(shape["d"]))},
    scalars=lambda shape: {"factor": math.log2(math.e) / math.sqrt(shape["d"])},
)
