"""torch's kernel for each kernel of `triton-v0` on a GPU: cuBLAS, flash attention, torch's own.

Where an operator writes into a given tensor by itself, it does; the others take their result from
torch's allocator, which keeps memory between calls. (Most `out` variants of fused operators copy.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["NO_VENDOR", "VENDOR"]

EPSILON = 1e-5

Bound = Callable[[], Any]
"""A call without arguments that answers its result"""


def _aten(name: str, overload: str = "out") -> Any:
    import torch

    return getattr(getattr(torch.ops.aten, name), overload)


def _functional(name: str) -> Any:
    import torch

    return getattr(torch.nn.functional, name)


def add(a: Any, b: Any, out: Any) -> Bound:
    """a + b."""
    operator = _aten("add")
    return lambda: operator(a, b, out=out)


def gelu(x: Any, out: Any) -> Bound:
    """In its tanh form."""
    operator = _aten("gelu")
    return lambda: operator(x, approximate="tanh", out=out)


def transpose(x: Any, out: Any) -> Bound:
    """A copy of the transposed view."""
    return lambda: out.copy_(x.T)


def softmax(x: Any, out: Any) -> Bound:
    """Over rows."""
    operator = _aten("_softmax")
    return lambda: operator(x, 1, False, out=out)


def layernorm(x: Any, gamma: Any, beta: Any, out: Any) -> Bound:
    """The fused operator."""
    operator = _functional("layer_norm")
    return lambda: operator(x, gamma.shape, gamma, beta, EPSILON)


def rmsnorm(x: Any, gamma: Any, out: Any) -> Bound:
    """The fused operator."""
    operator = _functional("rms_norm")
    return lambda: operator(x, gamma.shape, gamma, EPSILON)


def matmul(a: Any, b: Any, c: Any) -> Bound:
    """cuBLAS."""
    operator = _aten("mm")
    return lambda: operator(a, b, out=c)


def batch_matmul(a: Any, b: Any, c: Any) -> Bound:
    """cuBLAS, batched."""
    operator = _aten("bmm")
    return lambda: operator(a, b, out=c)


def matmul_bias_gelu(a: Any, b: Any, bias: Any, c: Any) -> Bound:
    """One call of cuBLASLt with its epilogue."""
    operator = _aten("_addmm_activation")
    return lambda: operator(bias, a, b, use_gelu=True, out=c)


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, out: Any) -> Bound:
    """Two calls, the first with its epilogue."""
    first, second = _aten("_addmm_activation", "default"), _aten("addmm")
    return lambda: second(b2, first(b1, x, w1, use_gelu=True), w2, out=out)


def int8_gemm(a: Any, b: Any, c: Any) -> Bound:
    """cuBLASLt, int8 with int32 sums."""
    operator = _aten("_int_mm")
    return lambda: operator(a, b, out=c)


def attention(q: Any, k: Any, v: Any, out: Any) -> Bound:
    """Whatever kernel torch holds for best: flash attention or cuDNN's."""
    operator = _functional("scaled_dot_product_attention")
    return lambda: operator(q[None], k[None], v[None])[0]


def cross_entropy(x: Any, label: Any, loss: Any) -> Bound:
    """Labels are widened once, outside of the call."""
    operator, wide = _functional("cross_entropy"), label.long()
    return lambda: operator(x, wide, reduction="none")


VENDOR: Mapping[str, Callable[..., Bound]] = {
    "add": add,
    "gelu": gelu,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "matmul": matmul,
    "matmul_bias_gelu": matmul_bias_gelu,
    "transpose": transpose,
    "softmax": softmax,
    "batch_matmul": batch_matmul,
    "cross_entropy": cross_entropy,
    "attention": attention,
    "mlp": mlp,
    "int8_gemm": int8_gemm,
}
"""Kernel → f(*inputs, *outputs) on tensors, which answers a bound call."""

NO_VENDOR: Mapping[str, str] = {"rope": "torch has no kernel of its own for rotary embeddings"}
"""Kernel → why there is none."""
