"""Which kernels have a Triton source; a family is imported, with triton, when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from tirgym.errors import InvalidValueError, MissingExtraError
from tirgym.kernels_suite.kernel import Kernel
from tirgym.kernels_suite.triton.source import TritonSource

__all__ = ["SOURCES", "SUITE", "all_meta_parameters", "require_triton", "triton_source"]

SUITE = "triton-v0"

SOURCES: dict[str, str] = {
    "add": "elementwise:ADD",
    "gelu": "elementwise:GELU",
    "layernorm": "normalization:LAYERNORM",
    "rmsnorm": "normalization:RMSNORM",
    "matmul": "matmul:MATMUL",
    "matmul_bias_gelu": "matmul:MATMUL_BIAS_GELU",
    "transpose": "layout:TRANSPOSE",
    "softmax": "softmax:SOFTMAX",
    "batch_matmul": "matmul:BATCH_MATMUL",
    "cross_entropy": "loss:CROSS_ENTROPY",
    "attention": "attention:ATTENTION",
    "mlp": "mlp:MLP",
    "int8_gemm": "matmul:INT8_GEMM",
    "rope": "rotary:ROPE",
}
"""Kernel of the suite → "family module:ATTRIBUTE", below `tirgym.kernels_suite.triton`."""


def require_triton(what: str) -> None:
    """Raises MissingExtraError unless triton is installed."""
    if find_spec("triton") is None:
        raise MissingExtraError(what, "triton", "triton")


def triton_source(kernel: Kernel) -> TritonSource:
    """The Triton source of `kernel`.

    Raises InvalidValueError for a kernel outside the suite `triton-v0`, MissingExtraError without
    triton.
    """
    if kernel.suite != SUITE or kernel.name not in SOURCES:
        accepted = f"a kernel with a Triton source: {SUITE}/{{{', '.join(SOURCES)}}}"
        raise InvalidValueError("kernel", f"{kernel.suite}/{kernel.name}", accepted)
    require_triton(f"the Triton source of {kernel.name}")
    return _loaded(SOURCES[kernel.name])


@cache
def _loaded(place: str) -> TritonSource:
    module, _, attribute = place.partition(":")
    return cast(TritonSource, getattr(import_module(f"{__package__}.{module}"), attribute))


@cache
def all_meta_parameters() -> dict[str, tuple[int, ...]]:
    """Every meta-parameter of any source → all values that it can have, ascending; block sizes first.

    Raises MissingExtraError without triton.
    """
    require_triton("the meta-parameters of Triton kernels")
    found: dict[str, set[int]] = {}
    for place in SOURCES.values():
        for parameter in _loaded(place).parameters:
            found.setdefault(parameter.name, set()).update(parameter.values)
    ordered = sorted(found, key=lambda name: (name.islower(), name))
    return {name: tuple(sorted(found[name])) for name in ordered}
