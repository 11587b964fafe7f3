"""PyTorch's own operator for a suite kernel in float32, into preallocated outputs.

The `out` variants of the ATen operators are called, so that no side pays for allocation alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tirgym.errors import BackendUnavailableError

__all__ = ["TORCH", "bind", "tensor_of", "version"]

EPSILON = 1e-5


def _aten(name: str, overload: str = "out") -> Any:
    import torch

    return getattr(getattr(torch.ops.aten, name), overload)


def linear_gelu(a: Any, b: Any, bias: Any, c: Any) -> None:
    """gelu(a b + bias)."""
    _aten("addmm")(bias, a, b, out=c)
    _aten("gelu")(c, approximate="tanh", out=c)


def layernorm(x: Any, gamma: Any, beta: Any, out: Any) -> None:
    """Row by row; mean and deviation go to small tensors of their own."""
    mean, deviation = x.new_empty((x.shape[0], 1)), x.new_empty((x.shape[0], 1))
    operator = _aten("native_layer_norm")
    operator(x, [x.shape[1]], gamma, beta, EPSILON, out0=out, out1=mean, out2=deviation)


def batchnorm(x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, out: Any) -> None:
    """By channel of a batch of one image."""
    arguments = (x[None], gamma, beta, mean, variance, False, 0.0, EPSILON)
    none = x.new_empty(0)
    operator = _aten("native_batch_norm")
    operator(*arguments, out=out[None], save_mean=none, save_invstd=none.clone())


def convolution(
    dimensions: int, stride: int = 1, pad: bool = False, depthwise: bool = False
) -> Callable[..., None]:
    """Cross-correlation of a batch of one image."""

    def run(x: Any, weight: Any, out: Any) -> None:
        groups = x.shape[0] if depthwise else 1
        filters = weight[:, None] if depthwise else weight
        around = [weight.shape[-1] // 2 if pad else 0] * dimensions
        steps, ones, zeros = [stride] * dimensions, [1] * dimensions, [0] * dimensions
        arguments = (x[None], filters, None, steps, around, ones, False, zeros, groups)
        _aten("convolution")(*arguments, out=out[None])

    return run


def max_pool(x: Any, out: Any) -> None:
    """Windows of 3x3, every second one."""
    import torch

    indices = torch.empty(out.shape, dtype=torch.int64, device=out.device)
    _aten("max_pool2d_with_indices")(x, [3, 3], [2, 2], out=out, indices=indices)


def attention(q: Any, k: Any, v: Any, out: Any) -> None:
    """Three operators; the fused one has no `out` variant."""
    score = q.new_empty((q.shape[0], q.shape[1], q.shape[1]))
    _aten("bmm")(q, k.transpose(1, 2), out=score)
    score.mul_(1.0 / math.sqrt(q.shape[2]))
    _aten("_softmax")(score, 2, False, out=score)
    _aten("bmm")(score, v, out=out)


def swiglu(x: Any, wg: Any, wu: Any, wd: Any, out: Any) -> None:
    """(silu(x wg) * (x wu)) wd."""
    hidden = _aten("silu", "default")(x @ wg)
    hidden.mul_(x @ wu)
    _aten("mm")(hidden, wd, out=out)


TORCH: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b, out: _aten("add")(a, b, out=out),
    "relu": lambda x, out: _aten("relu")(x, out=out),
    "gelu": lambda x, out: _aten("gelu")(x, approximate="tanh", out=out),
    "silu": lambda x, out: _aten("silu")(x, out=out),
    "transpose": lambda x, out: out.copy_(x.T),
    "permute": lambda x, out: out.copy_(x.permute(1, 2, 0)),
    "concat": lambda a, b, out: _aten("cat")([a, b], 1, out=out),
    "gather": lambda x, index, out: _aten("index_select")(x, 0, index, out=out),
    "matmul": lambda a, b, c: _aten("mm")(a, b, out=c),
    "matmul_tn": lambda a, b, c: _aten("mm")(a.T, b, out=c),
    "matmul_nt": lambda a, b, c: _aten("mm")(a, b.T, out=c),
    "matvec": lambda a, x, y: _aten("mv")(a, x, out=y),
    "skinny_matmul": lambda a, b, d, c: _aten("addmm")(d, a, b, out=c),
    "matmul_bias_gelu": linear_gelu,
    "batch_matmul": lambda a, b, c: _aten("bmm")(a, b, out=c),
    "row_sum": lambda x, out: _aten("sum", "IntList_out")(x, [1], out=out),
    "row_max": lambda x, out: _aten("amax")(x, [1], out=out),
    "row_mean": lambda x, out: _aten("mean")(x, [1], out=out),
    "row_variance": lambda x, out: _aten("var", "correction_out")(x, [1], correction=0, out=out),
    "row_l2norm": lambda x, out: _aten("linalg_vector_norm")(x, 2, [1], out=out),
    "cumsum": lambda x, out: _aten("cumsum")(x, 1, out=out),
    "softmax": lambda x, out: _aten("_softmax")(x, 1, False, out=out),
    "log_softmax": lambda x, out: _aten("_log_softmax")(x, 1, False, out=out),
    "layernorm": layernorm,
    "batchnorm_inference": batchnorm,
    "conv1d": convolution(1),
    "conv2d": convolution(2),
    "conv2d_strided": convolution(2, stride=2),
    "conv2d_padded": convolution(2, pad=True),
    "depthwise_conv2d": convolution(2, depthwise=True),
    "max_pool2d": max_pool,
    "avg_pool2d": lambda x, out: _aten("avg_pool2d")(x, [3, 3], [2, 2], out=out),
    "attention": attention,
    "swiglu": swiglu,
}
"""Kernel name → f(*inputs, *outputs) on tensors."""


def bind(kernel: str, arrays: tuple[Any, ...], num_threads: int) -> Callable[[], Any]:
    """A call without arguments that computes `kernel` on `arrays`, its inputs and then outputs: NumPy's,
    or a GPU's by their `__cuda_array_interface__`. In float32 throughout, without TF32."""
    import torch

    torch.set_num_threads(num_threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    function, tensors = TORCH[kernel], [tensor_of(array) for array in arrays]

    def call() -> None:
        with torch.inference_mode():
            function(*tensors)

    return call


def tensor_of(array: Any) -> Any:
    """The same memory as a tensor; raises BackendUnavailableError for a GPU's where torch has none."""
    import torch

    if isinstance(array, np.ndarray):
        return torch.from_numpy(array)
    if not torch.cuda.is_available():
        raise BackendUnavailableError("this torch sees no GPU: install torch's CUDA build")
    return torch.as_tensor(array, device="cuda")


def version() -> str:
    """`torch 2.14.1`."""
    import torch

    return f"torch {torch.__version__}"
