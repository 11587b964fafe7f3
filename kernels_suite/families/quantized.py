"""Integer matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tirgym.kernels_suite.kernel import Kernel, Shape

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc


def build_int8_gemm(shape: Shape) -> PrimFunc:
    """c = a b: a (m, k) and b (k, n) int8, c int32 with int32 accumulation."""
    from tvm import te

    m, n, k = shape["m"], shape["n"], shape["k"]
    a = te.placeholder((m, k), "int8", "a")
    b = te.placeholder((k, n), "int8", "b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r),
        "c",
    )
    return te.create_prim_func([a, b, c])


INT8_GEMM = Kernel(
    name="int8_gemm",
    family="quantized",
    build=build_int8_gemm,
    reference=lambda a, b: a.astype(np.int64) @ b.astype(np.int64),
    exact=True,
    dtype="int8",
    train=(
        {"m": 120, "n": 208, "k": 176},
        {"m": 60, "n": 112, "k": 496},
        {"m": 128, "n": 128, "k": 128},
    ),
    holdout=({"m": 67, "n": 61, "k": 113}, {"m": 65, "n": 63, "k": 129}, {"m": 1, "n": 17, "k": 1}),
    tiny={"m": 10, "n": 12, "k": 14},
)
