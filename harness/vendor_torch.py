"""PyTorch's own way to compute a suite kernel in float32: the fastest call that a user could write.

What writes into a given tensor by itself does, so that no side pays for allocation alone. Many `out`
variants do not: they compute into memory of their own and copy (`torch.Tag.generated`). There the
function that returns its result is timed, and the copy is not. Views and scratch memory are made
once, outside of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tirgym.errors import BackendUnavailableError
from tirgym.harness.worker_device import BoundCall

__all__ = ["TORCH", "bind", "tensor_of", "version"]

EPSILON = 1e-5

Operator = Callable[[], Any]
"""A call without arguments that returns its result, of as many elements as the output"""


def _torch(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _nn(name: str) -> Any:
    """What lies behind functions of torch.nn.functional, which do not all take `out`."""
    import torch

    return getattr(torch._C._nn, name)


def plain(name: str) -> Callable[..., Operator]:
    """The operator of torch that is called `name` and takes `out`."""

    def prepare(*tensors: Any) -> Operator:
        operator, (*inputs, out) = _torch(name), tensors
        return lambda: operator(*inputs, out=out)

    return prepare


def over_rows(name: str, *arguments: Any, **named: Any) -> Callable[..., Operator]:
    """As `plain`, along the second axis, which is the operator's second argument."""

    def prepare(x: Any, out: Any) -> Operator:
        operator = _torch(name)
        return lambda: operator(x, 1, *arguments, **named, out=out)

    return prepare


def relu(x: Any, out: Any) -> Operator:
    """What torch's own relu calls, whose `out` variant copies."""
    operator = _torch("clamp_min")
    return lambda: operator(x, 0, out=out)


def gelu(x: Any, out: Any) -> Operator:
    """In its tanh form."""
    operator = _nn("gelu")
    return lambda: operator(x, approximate="tanh", out=out)


def silu(x: Any, out: Any) -> Operator:
    """x / (1 + exp(-x))."""
    operator = _nn("silu")
    return lambda: operator(x, out=out)


def copy_of(view: Callable[[Any], Any]) -> Callable[..., Operator]:
    """A copy of a view of x."""

    def prepare(x: Any, out: Any) -> Operator:
        seen = view(x)
        return lambda: out.copy_(seen)

    return prepare


def concat(a: Any, b: Any, out: Any) -> Operator:
    """Side by side."""
    operator = _torch("cat")
    return lambda: operator((a, b), 1, out=out)


def gather(x: Any, index: Any, out: Any) -> Operator:
    """Rows of x."""
    operator = _torch("index_select")
    return lambda: operator(x, 0, index, out=out)


def matmul(left: bool = False, right: bool = False) -> Callable[..., Operator]:
    """The product of matrices, of which the left or the right one is stored by columns."""

    def prepare(a: Any, b: Any, c: Any) -> Operator:
        operator = _torch("mm")
        first, second = a.T if left else a, b.T if right else b
        return lambda: operator(first, second, out=c)

    return prepare


def skinny_matmul(a: Any, b: Any, d: Any, c: Any) -> Operator:
    """a b + d."""
    operator = _torch("addmm")
    return lambda: operator(d, a, b, out=c)


def linear_gelu(a: Any, b: Any, bias: Any, c: Any) -> Operator:
    """gelu(a b + bias)."""
    linear, activation = _torch("addmm"), _nn("gelu")

    def run() -> Any:
        linear(bias, a, b, out=c)
        return activation(c, approximate="tanh", out=c)

    return run


def row_l2norm(x: Any, out: Any) -> Operator:
    """The root of the sum of squares."""
    operator = _torch("linalg").vector_norm
    return lambda: operator(x, 2, 1, out=out)


def layernorm(x: Any, gamma: Any, beta: Any, out: Any) -> Operator:
    """Row by row."""
    operator, shape = _torch("layer_norm"), gamma.shape
    return lambda: operator(x, shape, gamma, beta, EPSILON)


def batchnorm(x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, out: Any) -> Operator:
    """By channel of a batch of one image."""
    operator = _torch("native_batch_norm")
    arguments = (x[None], gamma, beta, mean, variance, False, 0.0, EPSILON)
    into = (out[None], x.new_empty(0), x.new_empty(0))

    def run() -> Any:
        operator(*arguments, out=into)
        return out

    return run


def convolution(
    dimensions: int, stride: int = 1, pad: bool = False, depthwise: bool = False
) -> Callable[..., Operator]:
    """Cross-correlation of a batch of one image."""

    def prepare(x: Any, weight: Any, out: Any) -> Operator:
        operator, batch = _torch(f"conv{dimensions}d"), x[None]
        groups = x.shape[0] if depthwise else 1
        filters = weight[:, None] if depthwise else weight
        around = weight.shape[-1] // 2 if pad else 0
        return lambda: operator(batch, filters, None, stride, around, 1, groups)

    return prepare


def max_pool(x: Any, out: Any) -> Operator:
    """Windows of 3x3, every second one."""
    import torch

    operator = _nn("max_pool2d_with_indices")
    into = out, torch.empty(out.shape, dtype=torch.int64, device=out.device)

    def run() -> Any:
        operator(x, 3, 2, out=into)
        return out

    return run


def avg_pool(x: Any, out: Any) -> Operator:
    """Windows of 3x3, every second one."""
    operator = _nn("avg_pool2d")
    return lambda: operator(x, 3, 2, out=out)


def attention(q: Any, k: Any, v: Any, out: Any) -> Operator:
    """The fused operator, as a batch of one: it is not fused for three dimensions."""
    operator, batch = _nn("scaled_dot_product_attention"), (q[None], k[None], v[None])
    return lambda: operator(*batch)


def swiglu(x: Any, wg: Any, wu: Any, wd: Any, out: Any) -> Operator:
    """(silu(x wg) * (x wu)) wd."""
    product, activation = _torch("mm"), _nn("silu")
    gate, up = (x.new_empty((x.shape[0], wg.shape[1])) for _ in range(2))

    def run() -> Any:
        product(x, wg, out=gate)
        activation(gate, out=gate)
        product(x, wu, out=up)
        return product(gate.mul_(up), wd, out=out)

    return run


TORCH: Mapping[str, Callable[..., Operator]] = {
    "add": plain("add"),
    "relu": relu,
    "gelu": gelu,
    "silu": silu,
    "transpose": copy_of(lambda x: x.T),
    "permute": copy_of(lambda x: x.permute(1, 2, 0)),
    "concat": concat,
    "gather": gather,
    "matmul": matmul(),
    "matmul_tn": matmul(left=True),
    "matmul_nt": matmul(right=True),
    "matvec": plain("mv"),
    "skinny_matmul": skinny_matmul,
    "matmul_bias_gelu": linear_gelu,
    "batch_matmul": plain("bmm"),
    "row_sum": over_rows("sum"),
    "row_max": over_rows("amax"),
    "row_mean": over_rows("mean"),
    "row_variance": over_rows("var", correction=0),
    "row_l2norm": row_l2norm,
    "cumsum": over_rows("cumsum"),
    "softmax": over_rows("_softmax", False),
    "log_softmax": over_rows("_log_softmax", False),
    "layernorm": layernorm,
    "batchnorm_inference": batchnorm,
    "conv1d": convolution(1),
    "conv2d": convolution(2),
    "conv2d_strided": convolution(2, stride=2),
    "conv2d_padded": convolution(2, pad=True),
    "depthwise_conv2d": convolution(2, depthwise=True),
    "max_pool2d": max_pool,
    "avg_pool2d": avg_pool,
    "attention": attention,
    "swiglu": swiglu,
}
"""Kernel name → f(*inputs, *outputs) on tensors, which prepares the operator's call."""


def bind(kernel: str, arrays: tuple[Any, ...], num_threads: int) -> BoundCall:
    """A call that computes `kernel` on `arrays`, its inputs and then its output: NumPy's, or a GPU's by
    their `__cuda_array_interface__`. In float32 throughout, without TF32."""
    import torch

    torch.set_num_threads(num_threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    tensors = [tensor_of(array) for array in arrays]
    operator, out = TORCH[kernel](*tensors), tensors[-1]
    result: Any = None

    def run() -> None:
        nonlocal result
        result = None  # first, so that the call finds its memory free
        result = operator()

    def keep() -> None:
        if result is not None and result.data_ptr() != out.data_ptr():
            out.copy_(result.reshape(out.shape))

    return BoundCall(run, keep)


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
