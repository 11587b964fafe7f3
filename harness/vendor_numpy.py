"""NumPy's own way to compute a suite kernel in float32, into preallocated outputs.

Each function takes the inputs and outputs of the kernel as arrays and returns nothing. A kernel
stands here only where a few library calls are what a NumPy user would write; softmax or attention
in NumPy are programs, not vendor calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tirgym.harness.worker_device import BoundCall
from tirgym.kernels_suite.families.polybench import ALPHA, BETA
from tirgym.kernels_suite.kernel import Array

__all__ = ["NUMPY", "bind", "version"]


def scale_shift(x: Array, factor: Array, offset: Array, out: Array) -> None:
    """x factor + offset."""
    np.multiply(x, factor[:, None], out=out)
    np.add(out, offset, out=out)


def skinny_matmul(a: Array, b: Array, d: Array, c: Array) -> None:
    """a b + d."""
    np.matmul(a, b, out=c)
    np.add(c, d, out=c)


def pad(x: Array, out: Array) -> None:
    """Two rows and three columns of zeros around x."""
    out.fill(0.0)
    out[2:-2, 3:-3] = x


def row_l2norm(x: Array, out: Array) -> None:
    """Root of the sum of squares of each row."""
    np.einsum("ij,ij->i", x, x, out=out)
    np.sqrt(out, out=out)


def argmax(x: Array, index: Array, top: Array) -> None:
    """Index and value of each row's maximum."""
    index[...] = np.argmax(x, axis=1)
    np.max(x, axis=1, out=top)


def bicg(a: Array, p: Array, r: Array, s: Array, q: Array) -> None:
    """a^T r and a p."""
    np.matmul(a.T, r, out=s)
    np.matmul(a, p, out=q)


def mvt(a: Array, x1: Array, x2: Array, y1: Array, y2: Array, z1: Array, z2: Array) -> None:
    """x1 + a y1 and x2 + a^T y2."""
    np.matmul(a, y1, out=z1)
    np.add(z1, x1, out=z1)
    np.matmul(a.T, y2, out=z2)
    np.add(z2, x2, out=z2)


def syrk(a: Array, c: Array, out: Array) -> None:
    """alpha a a^T + beta c."""
    np.matmul(a, a.T, out=out)
    np.multiply(out, np.float32(ALPHA), out=out)
    np.add(out, np.float32(BETA) * c, out=out)


def two_mm(a: Array, b: Array, c: Array, d: Array, out: Array) -> None:
    """alpha a b c + beta d."""
    np.matmul(np.matmul(a, b), c, out=out)
    np.multiply(out, np.float32(ALPHA), out=out)
    np.add(out, np.float32(BETA) * d, out=out)


NUMPY: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b, out: np.add(a, b, out=out),
    "relu": lambda x, out: np.maximum(x, np.float32(0), out=out),
    "scale_shift": scale_shift,
    "transpose": lambda x, out: np.copyto(out, x.T),
    "permute": lambda x, out: np.copyto(out, x.transpose(1, 2, 0)),
    "pad": pad,
    "concat": lambda a, b, out: np.concatenate((a, b), axis=1, out=out),
    "gather": lambda x, index, out: np.take(x, index, axis=0, out=out, mode="clip"),
    "matmul": lambda a, b, c: np.matmul(a, b, out=c),
    "matmul_tn": lambda a, b, c: np.matmul(a.T, b, out=c),
    "matmul_nt": lambda a, b, c: np.matmul(a, b.T, out=c),
    "matvec": lambda a, x, y: np.matmul(a, x, out=y),
    "skinny_matmul": skinny_matmul,
    "batch_matmul": lambda a, b, c: np.matmul(a, b, out=c),
    "int8_gemm": lambda a, b, c: np.matmul(a, b, dtype=np.int32, out=c),
    "row_sum": lambda x, out: np.sum(x, axis=1, out=out),
    "row_max": lambda x, out: np.max(x, axis=1, out=out),
    "row_mean": lambda x, out: np.mean(x, axis=1, out=out),
    "row_variance": lambda x, out: np.var(x, axis=1, out=out),
    "row_l2norm": row_l2norm,
    "argmax": argmax,
    "cumsum": lambda x, out: np.cumsum(x, axis=1, out=out),
    "atax": lambda a, x, y: np.matmul(a.T, np.matmul(a, x), out=y),
    "bicg": bicg,
    "mvt": mvt,
    "syrk": syrk,
    "2mm": two_mm,
}
"""Kernel name → f(*inputs, *outputs)."""


def bind(kernel: str, arrays: tuple[Array, ...], num_threads: int) -> BoundCall:
    """A call that computes `kernel` on `arrays`, its inputs and then outputs.

    BLAS takes its threads from the environment, so `num_threads` must be set there already.
    """
    del num_threads
    function = NUMPY[kernel]
    return BoundCall(lambda: function(*arrays))


def version() -> str:
    """`numpy 2.4.6 (openblas64 0.3.30)`."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"numpy {np.__version__} ({blas['name']} {blas['version']})"
