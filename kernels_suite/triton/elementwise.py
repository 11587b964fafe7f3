"""Elementwise kernels over flat arrays: one block of elements per program."""

from __future__ import annotations

import triton
import triton.language as tl

from tirgym.kernels_suite.kernel import Shape
from tirgym.kernels_suite.triton.source import Config, TritonSource, meta

_PARAMETERS = (
    meta("BLOCK", 256, 512, 1024, 2048, 4096, default=1024),
    meta("num_warps", 1, 2, 4, 8, default=4),
    meta("num_stages", 1, default=1),
)


@triton.jit
def gelu_of(x):
    """x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)): GELU in its tanh form, float32."""
    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def add(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    a = tl.load(a_ptr + index, mask=inside)
    b = tl.load(b_ptr + index, mask=inside)
    tl.store(out_ptr + index, a + b, mask=inside)


@triton.jit
def gelu(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, gelu_of(x), mask=inside)


def _size(shape: Shape) -> dict[str, float]:
    return {"size": shape["m"] * shape["n"]}


def _grid(shape: Shape, config: Config) -> tuple[int, ...]:
    return (triton.cdiv(shape["m"] * shape["n"], config["BLOCK"]),)


ADD = TritonSource(add, _PARAMETERS, _grid, scalars=_size)
GELU = TritonSource(gelu, _PARAMETERS, _grid, scalars=_size)
