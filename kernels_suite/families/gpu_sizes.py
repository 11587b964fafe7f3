"""Kernels of core-v0 at sizes that fill a GPU: same program, same reference."""

from __future__ import annotations

from dataclasses import replace

from tirgym.kernels_suite.families import elementwise, layout, normalization, quantized, softmax

_MATRICES = ({"m": 4096, "n": 4096}, {"m": 1024, "n": 16384}, {"m": 2040, "n": 1160})
_ODD_MATRICES = ({"m": 1021, "n": 509}, {"m": 257, "n": 65}, {"m": 1, "n": 1})
_ROWS = ({"m": 4096, "n": 4096}, {"m": 16384, "n": 1024}, {"m": 2048, "n": 8192})
_ODD_ROWS = ({"m": 127, "n": 1021}, {"m": 65, "n": 129}, {"m": 3, "n": 1})

ADD = replace(elementwise.ADD, train=_MATRICES, holdout=_ODD_MATRICES)
GELU = replace(elementwise.GELU, train=_MATRICES, holdout=_ODD_MATRICES)
TRANSPOSE = replace(layout.TRANSPOSE, train=_MATRICES, holdout=_ODD_MATRICES)
SOFTMAX = replace(softmax.SOFTMAX, train=_ROWS, holdout=_ODD_ROWS)
LAYERNORM = replace(normalization.LAYERNORM, train=_ROWS, holdout=_ODD_ROWS)
RMSNORM = replace(normalization.RMSNORM, train=_ROWS, holdout=_ODD_ROWS)
INT8_GEMM = replace(
    quantized.INT8_GEMM,
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
)
