"""Rotary position embedding: one token and a group of heads per program."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta, next_power_of_2


@triton.jit
def rope(x_ptr, cos_ptr, sin_ptr, out_ptr, heads, half, BLOCK_H: tl.constexpr, WIDTH: tl.constexpr):
    """WIDTH >= half is a power of two."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (column < half)
    cos = tl.load(cos_ptr + token * half + column, mask=column < half, other=0.0)
    sin = tl.load(sin_ptr + token * half + column, mask=column < half, other=0.0)
    index = token * heads * half * 2 + head * half * 2 + column
    low = tl.load(x_ptr + index, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x_ptr + index + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, (low * cos - high * sin).to(tl.float16), mask=inside)
    tl.store(out_ptr + index + half, (high * cos + low * sin).to(tl.float16), mask=inside)


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return shape["tokens"], triton.cdiv(shape["heads"], config["BLOCK_H"])


ROPE = TritonSource(
    rope,
    (
        meta("BLOCK_H", 1, 2, 4, 8, 16, 32, default=8),
        meta("num_warps", 1, 2, 4, 8, default=4),
        meta("num_stages", 1, default=1),
    ),
    _grid,
    constants=lambda shape: {"WIDTH": next_power_of_2(shape["half"])},
)
