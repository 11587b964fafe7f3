"""Kernels of core-v0 at sizes that fill a GPU: same program, same reference.

What follows from the program is stated too, so that a machine without TVM can run them; a test
compares both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tirgym.kernels_suite.families import elementwise, layout, normalization, quantized, softmax
from tirgym.kernels_suite.kernel import Array
from tirgym.kernels_suite.parameters import of_dims

_MATRICES = ({"m": 4096, "n": 4096}, {"m": 1024, "n": 16384}, {"m": 2040, "n": 1160})
_ODD_MATRICES = ({"m": 1021, "n": 509}, {"m": 257, "n": 65}, {"m": 1, "n": 1})
_ROWS = ({"m": 4096, "n": 4096}, {"m": 16384, "n": 1024}, {"m": 2048, "n": 8192})
_ODD_ROWS = ({"m": 127, "n": 1021}, {"m": 65, "n": 129}, {"m": 3, "n": 1})

ADD = replace(
    elementwise.ADD,
    train=_MATRICES,
    holdout=_ODD_MATRICES,
    parameters=of_dims(a="m n", b="m n", out="m n"),
    terms=lambda _: 1,
)
GELU = replace(
    elementwise.GELU,
    train=_MATRICES,
    holdout=_ODD_MATRICES,
    parameters=of_dims(x="m n", out="m n"),
    terms=lambda _: 6,
)
TRANSPOSE = replace(
    layout.TRANSPOSE,
    train=_MATRICES,
    holdout=_ODD_MATRICES,
    parameters=of_dims(x="m n", out="n m"),
    terms=lambda _: 1,
)
SOFTMAX = replace(
    softmax.SOFTMAX,
    train=_ROWS,
    holdout=_ODD_ROWS,
    parameters=of_dims(x="m n", out="m n"),
    terms=lambda shape: 2 * shape["n"] + 2,
)
LAYERNORM = replace(
    normalization.LAYERNORM,
    train=_ROWS,
    holdout=_ODD_ROWS,
    parameters=of_dims(x="m n", gamma="n", beta="n", out="m n"),
    terms=lambda shape: 2 * shape["n"] + 2,
)
RMSNORM = replace(
    normalization.RMSNORM,
    train=_ROWS,
    holdout=_ODD_ROWS,
    parameters=of_dims(x="m n", gamma="n", out="m n"),
    terms=lambda shape: shape["n"] + 2,
)


def int8_product(a: Array, b: Array) -> Array:
    """a b, exact: sums of fewer than 2^39 products of int8 values are whole numbers that float64
    holds, and float64 products are fast."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


INT8_GEMM = replace(
    quantized.INT8_GEMM,
    reference=int8_product,
    train=(
        {"m": 4096, "n": 4096, "k": 4096},
        {"m": 1024, "n": 8192, "k": 2048},
        {"m": 2048, "n": 2048, "k": 512},
    ),
    holdout=(
        {"m": 127, "n": 131, "k": 113},
        {"m": 65, "n": 63, "k": 129},
        {"m": 1, "n": 17, "k": 1},
    ),
    parameters=of_dims("int8", a="m k", b="k n", c="m n int32"),
    terms=lambda shape: shape["k"],
)
