"""The suites: versioned literal tables that are never edited once released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirgym.kernels_suite.kernel import Split

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """Kernels by name, and the split of each family."""

    name: str
    splits: Mapping[str, Split]
    """family → split"""
    kernels: Mapping[str, str]
    """kernel → "family module:ATTRIBUTE", below `tirgym.kernels_suite.families` """


CORE_V0 = Suite(
    name="core-v0",
    splits={
        "elementwise": Split.TRAIN,
        "reduction": Split.TRAIN,
        "normalization": Split.TRAIN,
        "matmul": Split.TRAIN,
        "convolution": Split.TRAIN,
        "layout": Split.TRAIN,
        "stencil": Split.TRAIN,
        "softmax": Split.VAL,
        "batch_matmul": Split.VAL,
        "pooling": Split.VAL,
        "attention": Split.TEST,
        "depthwise": Split.TEST,
        "mlp": Split.TEST,
        "polybench": Split.TEST,
        "quantized": Split.TEST,
        "scan": Split.TEST,
    },
    kernels={
        "add": "elementwise:ADD",
        "relu": "elementwise:RELU",
        "gelu": "elementwise:GELU",
        "silu": "elementwise:SILU",
        "bias_gelu": "elementwise:BIAS_GELU",
        "scale_shift": "elementwise:SCALE_SHIFT",
        "row_sum": "reduction:ROW_SUM",
        "row_max": "reduction:ROW_MAX",
        "row_mean": "reduction:ROW_MEAN",
        "row_variance": "reduction:ROW_VARIANCE",
        "row_l2norm": "reduction:ROW_L2NORM",
        "argmax": "reduction:ARGMAX",
        "layernorm": "normalization:LAYERNORM",
        "rmsnorm": "normalization:RMSNORM",
        "batchnorm_inference": "normalization:BATCHNORM_INFERENCE",
        "matmul": "matmul:MATMUL",
        "matmul_tn": "matmul:MATMUL_TN",
        "matmul_nt": "matmul:MATMUL_NT",
        "matvec": "matmul:MATVEC",
        "skinny_matmul": "matmul:SKINNY_MATMUL",
        "matmul_bias_gelu": "matmul:MATMUL_BIAS_GELU",
        "conv1d": "convolution:CONV1D",
        "conv2d": "convolution:CONV2D",
        "conv2d_strided": "convolution:CONV2D_STRIDED",
        "conv2d_padded": "convolution:CONV2D_PADDED",
        "transpose": "layout:TRANSPOSE",
        "permute": "layout:PERMUTE",
        "pad": "layout:PAD",
        "concat": "layout:CONCAT",
        "gather": "layout:GATHER",
        "stencil2d": "stencil:STENCIL2D",
        "blur": "stencil:BLUR",
        "softmax": "softmax:SOFTMAX",
        "log_softmax": "softmax:LOG_SOFTMAX",
        "batch_matmul": "batch_matmul:BATCH_MATMUL",
        "max_pool2d": "pooling:MAX_POOL2D",
        "avg_pool2d": "pooling:AVG_POOL2D",
        "attention": "attention:ATTENTION",
        "depthwise_conv2d": "depthwise:DEPTHWISE_CONV2D",
        "mlp": "mlp:MLP",
        "swiglu": "mlp:SWIGLU",
        "atax": "polybench:ATAX",
        "bicg": "polybench:BICG",
        "mvt": "polybench:MVT",
        "gemver": "polybench:GEMVER",
        "syrk": "polybench:SYRK",
        "2mm": "polybench:TWO_MM",
        "int8_gemm": "quantized:INT8_GEMM",
        "cumsum": "scan:CUMSUM",
    },
)

TRITON_V0 = Suite(
    name="triton-v0",
    splits={
        "elementwise": Split.TRAIN,
        "normalization": Split.TRAIN,
        "matmul": Split.TRAIN,
        "layout": Split.TRAIN,
        "softmax": Split.VAL,
        "batch_matmul": Split.VAL,
        "loss": Split.VAL,
        "attention": Split.TEST,
        "mlp": Split.TEST,
        "quantized": Split.TEST,
        "rotary": Split.TEST,
    },
    kernels={
        "add": "gpu_sizes:ADD",
        "gelu": "gpu_sizes:GELU",
        "layernorm": "gpu_sizes:LAYERNORM",
        "rmsnorm": "gpu_sizes:RMSNORM",
        "matmul": "half_precision:MATMUL",
        "matmul_bias_gelu": "half_precision:MATMUL_BIAS_GELU",
        "transpose": "gpu_sizes:TRANSPOSE",
        "softmax": "gpu_sizes:SOFTMAX",
        "batch_matmul": "half_precision:BATCH_MATMUL",
        "cross_entropy": "loss:CROSS_ENTROPY",
        "attention": "half_precision:ATTENTION",
        "mlp": "half_precision:MLP",
        "int8_gemm": "gpu_sizes:INT8_GEMM",
        "rope": "rotary:ROPE",
    },
)
"""Kernels that also have a Triton source (`tirgym.kernels_suite.triton`)."""

SUITES: Mapping[str, Suite] = {suite.name: suite for suite in (CORE_V0, TRITON_V0)}
