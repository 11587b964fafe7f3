"""Kernels that are short NumPy programs: several calls in float32, into preallocated outputs.

What a NumPy user would write with care: whole arrays, in place where that saves a pass, no
temporary larger than it must be. They stand apart from `vendor_numpy`, whose entries are one library
call each, since their speed says as much about the program as about the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tirgym.harness.worker_device import BoundCall
from tirgym.kernels_suite.kernel import Array

__all__ = ["PROGRAMS", "bind", "version"]

EPSILON = np.float32(1e-5)
CUBIC = np.float32(0.044715)
"""Of the tanh form of gelu (Hendrycks and Gimpel, 2016)."""


def _softmax(x: Array) -> None:
    """In place, over the last axis."""
    x -= x.max(axis=-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=-1, keepdims=True)


def _gelu(x: Array, out: Array) -> None:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    np.multiply(x, x, out=out)
    out *= CUBIC
    out += np.float32(1)
    out *= x
    out *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(out, out=out)
    out += np.float32(1)
    out *= x
    out *= np.float32(0.5)


def softmax(x: Array, out: Array) -> None:
    """exp(x - max) / sum, over rows."""
    np.copyto(out, x)
    _softmax(out)


def log_softmax(x: Array, out: Array) -> None:
    """x - max - log(sum exp(x - max)), over rows."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(axis=1, keepdims=True))


def layernorm(x: Array, gamma: Array, beta: Array, out: Array) -> None:
    """Rows to mean 0 and variance 1, then gamma and beta."""
    np.subtract(x, x.mean(axis=1, keepdims=True), out=out)
    square = np.einsum("ij,ij->i", out, out) / np.float32(x.shape[1])
    out /= np.sqrt(square + EPSILON)[:, None]
    out *= gamma
    out += beta


def rmsnorm(x: Array, gamma: Array, out: Array) -> None:
    """Rows to mean square 1, then gamma."""
    square = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
    np.divide(x, np.sqrt(square + EPSILON)[:, None], out=out)
    out *= gamma


def gelu(x: Array, out: Array) -> None:
    """The tanh form."""
    _gelu(x, out)


def silu(x: Array, out: Array) -> None:
    """x / (1 + exp(-x))."""
    np.negative(x, out=out)
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    out += np.float32(1)
    np.divide(x, out, out=out)


def matmul_bias_gelu(a: Array, b: Array, bias: Array, c: Array) -> None:
    """gelu(a b + bias)."""
    moved = a @ b
    moved += bias
    _gelu(moved, c)


def attention(q: Array, k: Array, v: Array, out: Array) -> None:
    """softmax(q k^T / sqrt(d)) v, head by head."""
    score = np.matmul(q, k.transpose(0, 2, 1))
    score *= np.float32(1.0 / math.sqrt(q.shape[2]))
    _softmax(score)
    np.matmul(score, v, out=out)


def convolution(x: Array, weight: Array, out: Array) -> None:
    """Cross-correlation of one image (c, h, w), zero-padded to the size of `out`: windows as a
    matrix, then one product."""
    margin = (out.shape[1] + weight.shape[2] - 1 - x.shape[1]) // 2
    if margin:
        x = np.pad(x, ((0, 0), (margin, margin), (margin, margin)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(1, 2))
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(weight[0].size, -1)
    np.matmul(weight.reshape(weight.shape[0], -1), columns, out=out.reshape(out.shape[0], -1))


PROGRAMS: Mapping[str, Callable[..., Any]] = {
    "gelu": gelu,
    "silu": silu,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "matmul_bias_gelu": matmul_bias_gelu,
    "conv2d": convolution,
    "conv2d_padded": convolution,
    "attention": attention,
}
"""Kernel name → f(*inputs, *outputs)."""


def bind(kernel: str, arrays: tuple[Array, ...], num_threads: int) -> BoundCall:
    """A call that computes `kernel` on `arrays`, its inputs and then outputs.

    BLAS takes its threads from the environment, so `num_threads` must be set there already.
    """
    del num_threads
    function = PROGRAMS[kernel]
    return BoundCall(lambda: function(*arrays))


def version() -> str:
    """`numpy 2.4.6, several calls`."""
    return f"numpy {np.__version__}, several calls"
