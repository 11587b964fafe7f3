"""Short hand-written schedules: what a person would try first, as a bar for agents and the lint.

No search agent may read this module; an import contract in `pyproject.toml` says so. Splits are
perfect at the first train shape only. The idea of each is one of a few: merge elementwise stages,
sum in 16 lanes (`RFactor`), or tile, put the reduction outside the tile, vectorize the innermost
loop, and take the initialisation out of the reduction.
"""

from __future__ import annotations

import re

from tirgym.errors import UnknownNameError

__all__ = ["HAND_SCHEDULES", "hand_schedule"]

HAND_SCHEDULES: dict[str, str] = {
    "scale_shift": """
        ComputeInline(block=0) Split(loop=1, factor=16) Vectorize(loop=2) Parallel(loop=0)
    """,
    "gelu": """
        ComputeInline(block=0) ComputeInline(block=0) ComputeInline(block=0)
        ComputeInline(block=0) ReverseComputeAt(block=1, loop=0) Split(loop=1, factor=16)
        Vectorize(loop=2) Split(loop=3, factor=16) Vectorize(loop=4) Parallel(loop=0)
    """,
    "silu": """
        ComputeInline(block=0) ComputeInline(block=0) ComputeInline(block=0)
        ComputeInline(block=0) ComputeInline(block=0) Split(loop=1, factor=16) Vectorize(loop=2)
        Parallel(loop=0)
    """,
    "bias_gelu": """
        ComputeInline(block=0) ComputeInline(block=0) ComputeInline(block=1)
        ComputeInline(block=1) ComputeInline(block=1) ComputeAt(block=0, loop=2)
        Split(loop=1, factor=16) Vectorize(loop=2)
    """,
    "row_sum": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2) Parallel(loop=0)
    """,
    "row_max": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2) Parallel(loop=0)
    """,
    "row_mean": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2) Parallel(loop=0)
    """,
    "row_variance": """
        ComputeInline(block=1) Split(loop=3, factor=16) RFactor(loop=4) Vectorize(loop=4)
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "row_l2norm": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2) Parallel(loop=0)
    """,
    "argmax": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "softmax": """
        Split(loop=5, factor=16) RFactor(loop=6) Vectorize(loop=6) Split(loop=1, factor=16)
        RFactor(loop=2) Vectorize(loop=2)
    """,
    "log_softmax": """
        ComputeInline(block=1) ComputeInline(block=1) Split(loop=3, factor=16) RFactor(loop=4)
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "layernorm": """
        ComputeInline(block=1) Split(loop=3, factor=16) RFactor(loop=4) Vectorize(loop=4)
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "rmsnorm": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "batchnorm_inference": """
        ComputeInline(block=0) ComputeInline(block=1)
    """,
    "matmul": """
        Split(loop=0, factor=2) Split(loop=2, factor=8) Split(loop=4, factor=16) Reorder(loop=3)
        Reorder(loop=2) Reorder(loop=1) Reorder(loop=2) Reorder(loop=4) Reorder(loop=3)
        Vectorize(loop=5) Unroll(loop=4) Parallel(loop=0) DecomposeReduction(loop=1)
    """,
    "matmul_tn": """
        Split(loop=0, factor=2) Split(loop=2, factor=8) Split(loop=4, factor=16) Reorder(loop=3)
        Reorder(loop=2) Reorder(loop=1) Reorder(loop=2) Reorder(loop=4) Reorder(loop=3)
        Vectorize(loop=5) Unroll(loop=4) Parallel(loop=0) DecomposeReduction(loop=1)
    """,
    "matmul_nt": """
        Split(loop=2, factor=16) RFactor(loop=3) Vectorize(loop=3) Parallel(loop=0)
    """,
    "matvec": """
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2) Parallel(loop=0)
    """,
    "skinny_matmul": """
        Reorder(loop=1) Split(loop=2, factor=16) Vectorize(loop=3) DecomposeReduction(loop=1)
    """,
    "matmul_bias_gelu": """
        Split(loop=0, factor=4) Split(loop=2, factor=16) Reorder(loop=3) Reorder(loop=2)
        Reorder(loop=1) Reorder(loop=2) Vectorize(loop=4) Unroll(loop=3) Parallel(loop=0)
        DecomposeReduction(loop=1)
    """,
    "batch_matmul": """
        Split(loop=1, factor=4) Split(loop=3, factor=16) Reorder(loop=4) Reorder(loop=3)
        Reorder(loop=2) Reorder(loop=3) Vectorize(loop=5) Unroll(loop=4) Parallel(loop=0)
        DecomposeReduction(loop=2)
    """,
    "conv1d": """
        Split(loop=0, factor=4) Split(loop=2, factor=16) Reorder(loop=3) Reorder(loop=4)
        Reorder(loop=1) Reorder(loop=2) Reorder(loop=3) Reorder(loop=2) Vectorize(loop=5)
        Unroll(loop=4) Parallel(loop=0) DecomposeReduction(loop=1)
    """,
    "conv2d": """
        Split(loop=0, factor=4) Split(loop=3, factor=16) Reorder(loop=1) Reorder(loop=2)
        Reorder(loop=4) Reorder(loop=5) Reorder(loop=6) Reorder(loop=3) Reorder(loop=4)
        Reorder(loop=5) Vectorize(loop=7) Unroll(loop=6) Parallel(loop=0)
        DecomposeReduction(loop=2)
    """,
    "conv2d_strided": """
        Split(loop=0, factor=4) Split(loop=3, factor=16) Reorder(loop=1) Reorder(loop=2)
        Reorder(loop=4) Reorder(loop=5) Reorder(loop=6) Reorder(loop=3) Reorder(loop=4)
        Reorder(loop=5) Vectorize(loop=7) Unroll(loop=6) Parallel(loop=0)
        DecomposeReduction(loop=2)
    """,
    "conv2d_padded": """
        Split(loop=3, factor=4) Split(loop=6, factor=16) Reorder(loop=4) Reorder(loop=5)
        Reorder(loop=7) Reorder(loop=8) Reorder(loop=9) Reorder(loop=6) Reorder(loop=7)
        Reorder(loop=8) Vectorize(loop=10) Unroll(loop=9) Parallel(loop=3)
        DecomposeReduction(loop=5)
    """,
    "transpose": """
        Split(loop=0, factor=16) Split(loop=2, factor=16) Reorder(loop=1) Vectorize(loop=3)
        Parallel(loop=0)
    """,
    "permute": """
        Split(loop=2, factor=8) Reorder(loop=1) Vectorize(loop=3) Parallel(loop=0)
    """,
    "concat": """
        Split(loop=1, factor=16) Vectorize(loop=2) Parallel(loop=0)
    """,
    "stencil2d": """
        ComputeInline(block=0) Split(loop=1, factor=16) Split(loop=0, factor=8) Reorder(loop=1)
        Vectorize(loop=3) Unroll(loop=2)
    """,
    "blur": """
        ComputeInline(block=0) Split(loop=1, factor=16) Split(loop=0, factor=8) Reorder(loop=1)
        Vectorize(loop=3) Unroll(loop=2)
    """,
    "avg_pool2d": """
        ReverseComputeAt(block=1, loop=1) Reorder(loop=2) Unroll(loop=2) Unroll(loop=4)
    """,
    "attention": """
        Split(loop=21, factor=16) Reorder(loop=22) Vectorize(loop=23)
        DecomposeReduction(loop=21)
    """,
    "depthwise_conv2d": """
        Split(loop=2, factor=16) Split(loop=1, factor=4) Reorder(loop=2) Reorder(loop=4)
        Reorder(loop=5) Reorder(loop=3) Reorder(loop=4) Vectorize(loop=6) Unroll(loop=5)
        Parallel(loop=0) DecomposeReduction(loop=3)
    """,
    "mlp": """
        Split(loop=7, factor=4) Split(loop=9, factor=16) Reorder(loop=10) Reorder(loop=9)
        Reorder(loop=8) Reorder(loop=9) Vectorize(loop=11) Unroll(loop=10)
        DecomposeReduction(loop=8) Split(loop=0, factor=4) Split(loop=2, factor=16)
        Reorder(loop=3) Reorder(loop=2) Reorder(loop=1) Reorder(loop=2) Vectorize(loop=4)
        Unroll(loop=3) DecomposeReduction(loop=1)
    """,
    "swiglu": """
        Split(loop=8, factor=4) Split(loop=10, factor=16) Reorder(loop=11) Reorder(loop=10)
        Reorder(loop=9) Reorder(loop=10) Vectorize(loop=12) Unroll(loop=11)
        DecomposeReduction(loop=9) Split(loop=3, factor=4) Split(loop=5, factor=16)
        Reorder(loop=6) Reorder(loop=5) Reorder(loop=4) Reorder(loop=5) Vectorize(loop=7)
        Unroll(loop=6) DecomposeReduction(loop=4) Split(loop=0, factor=4)
        Split(loop=2, factor=16) Reorder(loop=3) Reorder(loop=2) Reorder(loop=1) Reorder(loop=2)
        Vectorize(loop=4) Unroll(loop=3) DecomposeReduction(loop=1)
    """,
    "atax": """
        Split(loop=2, factor=16) Reorder(loop=3) Vectorize(loop=4) DecomposeReduction(loop=2)
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "bicg": """
        Split(loop=3, factor=16) RFactor(loop=4) Vectorize(loop=4) Split(loop=0, factor=16)
        Reorder(loop=1) Vectorize(loop=2) DecomposeReduction(loop=0)
    """,
    "mvt": """
        Split(loop=3, factor=16) Reorder(loop=4) Vectorize(loop=5) DecomposeReduction(loop=3)
        Split(loop=1, factor=16) RFactor(loop=2) Vectorize(loop=2)
    """,
    "gemver": """
        ComputeInline(block=0) Split(loop=4, factor=16) RFactor(loop=5) Vectorize(loop=5)
        Split(loop=0, factor=16) Reorder(loop=1) Vectorize(loop=2) DecomposeReduction(loop=0)
    """,
    "syrk": """
        Split(loop=2, factor=16) RFactor(loop=3) Vectorize(loop=3)
    """,
    "2mm": """
        Split(loop=3, factor=4) Split(loop=5, factor=8) Reorder(loop=6) Reorder(loop=5)
        Reorder(loop=4) Reorder(loop=5) Vectorize(loop=7) Unroll(loop=6)
        DecomposeReduction(loop=4) Split(loop=0, factor=4) Split(loop=2, factor=8)
        Reorder(loop=3) Reorder(loop=2) Reorder(loop=1) Reorder(loop=2) Vectorize(loop=4)
        Unroll(loop=3) DecomposeReduction(loop=1)
    """,
    "int8_gemm": """
        Split(loop=0, factor=4) Split(loop=2, factor=16) Reorder(loop=3) Reorder(loop=2)
        Reorder(loop=1) Reorder(loop=2) Vectorize(loop=4) Unroll(loop=3) Parallel(loop=0)
        DecomposeReduction(loop=1)
    """,
    "cumsum": """
        Reorder(loop=11) Vectorize(loop=12) Unroll(loop=11)
    """,
}
"""Kernel of core-v0 → transforms in order, in their text form. The others are bound by memory
traffic in any order of their loops (tag `control`)."""


def hand_schedule(kernel: str, num_threads: int = 1) -> tuple[str, ...]:
    """The transforms for `kernel`; on one thread without `Parallel`, which is illegal there.

    Raises UnknownNameError if there is none.
    """
    if kernel not in HAND_SCHEDULES:
        raise UnknownNameError("kernel with a hand schedule", kernel, HAND_SCHEDULES)
    texts = re.findall(r"\w+\([^)]*\)", HAND_SCHEDULES[kernel])
    return tuple(t for t in texts if num_threads > 1 or not t.startswith("Parallel("))
