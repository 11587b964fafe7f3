"""`of_dims`: the parameters of a kernel, stated by the names of their dimensions."""

from __future__ import annotations

from collections.abc import Callable

from tirgym.kernels_suite.kernel import Shape, Tensor

__all__ = ["of_dims"]


def of_dims(dtype: str = "float32", **tensors: str) -> Callable[[Shape], tuple[Tensor, ...]]:
    """Shape → tensors, in order. Each is stated as its dimensions, 2*half for twice one, and a
    dtype at the end where it has another: `of_dims(x="m n", label="m int32", out="m")`."""

    def parameters(shape: Shape) -> tuple[Tensor, ...]:
        return tuple(_tensor(name, text, dtype, shape) for name, text in tensors.items())

    return parameters


def _tensor(name: str, text: str, dtype: str, shape: Shape) -> Tensor:
    words = text.split()
    if words[-1].rpartition("*")[2] not in shape:
        dtype = words.pop()
    return Tensor(name, tuple(_extent(word, shape) for word in words), dtype)


def _extent(word: str, shape: Shape) -> int:
    times, _, dim = word.rpartition("*")
    return int(times or 1) * shape[dim]
