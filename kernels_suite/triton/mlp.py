"""Both layers of a perceptron in one kernel: the hidden layer stays in registers."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.elementwise import gelu_of
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta, next_power_of_2


@triton.jit
def mlp(
    x_ptr, w1_ptr, b1_ptr, w2_ptr, b2_ptr, out_ptr, m, d, f,
    BLOCK_M: tl.constexpr, BLOCK_F: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """WIDTH >= d is a power of two."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inner = tl.arange(0, WIDTH)
    x_inside = (row[:, None] < m) & (inner[None, :] < d)
    x = tl.load(x_ptr + row[:, None] * d + inner[None, :], mask=x_inside, other=0.0)
    total = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for first in range(0, f, BLOCK_F):
        unit = first + tl.arange(0, BLOCK_F)
        up_inside = (inner[:, None] < d) & (unit[None, :] < f)
        w1 = tl.load(w1_ptr + inner[:, None] * f + unit[None, :], mask=up_inside, other=0.0)
        b1 = tl.load(b1_ptr + unit, mask=unit < f, other=0.0).to(tl.float32)
        hidden = gelu_of(tl.dot(x, w1) + b1[None, :])
        down_inside = (unit[:, None] < f) & (inner[None, :] < d)
        w2 = tl.load(w2_ptr + unit[:, None] * d + inner[None, :], mask=down_inside, other=0.0)
        total = tl.dot(hidden.to(tl.float16), w2, total)
    b2 = tl.load(b2_ptr + inner, mask=inner < d, other=0.0).to(tl.float32)
    out = (total + b2[None, :]).to(tl.float16)
    tl.store(out_ptr + row[:, None] * d + inner[None, :], out, mask=x_inside)


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return (triton.cdiv(shape["m"], config["BLOCK_M"]),)


MLP = TritonSource(
    mlp,
    (
        meta("BLOCK_M", 32, 64, 128, default=64),
        meta("BLOCK_F", 16, 32, 64, 128, default=32),
        meta("num_warps", 2, 4, 8, default=4),
        meta("num_stages", 1, 2, 3, 4, default=2),
    ),
    _grid,
    constants=lambda shape: {"WIDTH": max(16, next_power_of_2(shape["d"]))},
)
