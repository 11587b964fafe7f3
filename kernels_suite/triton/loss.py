"""Cross-entropy in one pass over each row, block by block, with a running maximum and sum
(Milakov and Gimelshein, arXiv:1805.02867)."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta


@triton.jit
def cross_entropy(x_ptr, label_ptr, loss_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    start = x_ptr + row.to(tl.int64) * n
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(start + column, mask=column < n, other=-float("inf"))
        higher = tl.maximum(top, x)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - safe) + tl.exp(x - safe)
        top = higher
    peak = tl.max(top, axis=0)
    summed = tl.sum(total * tl.exp(top - peak), axis=0)
    chosen = tl.load(start + label)
    tl.store(loss_ptr + row, tl.log(summed) + (peak - chosen))


def _grid(shape: Shape, _: Config) -> tuple[int, ...]:
    return (shape["m"],)


CROSS_ENTROPY = TritonSource(
    cross_entropy,
    (
        meta("BLOCK", 256, 512, 1024, 2048, 4096, 8192, default=2048),
        meta("num_warps", 1, 2, 4, 8, 16, default=4),
        meta("num_stages", 1, 2, 3, 4, default=2),
    ),
    _grid,
)
