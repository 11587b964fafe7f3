"""Modules and blocks with parts of them replaced; TVM's nodes never change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock

__all__ = ["with_nodes", "with_parts"]

_PARTS = (
    "iter_vars",
    "reads",
    "writes",
    "name_hint",
    "body",
    "init",
    "alloc_buffers",
    "match_buffers",
    "annotations",
)


def with_nodes(mod: Any, *changes: tuple[type, Callable[[Any], Any]]) -> Any:
    """`mod` with each node of a type replaced by what its function answers for it."""
    functions = {
        name.name_hint: tvm_ffi.structural_map(func, list(changes))
        for name, func in mod.functions.items()
    }
    return tvm.IRModule(functions)


def with_parts(block: Any, **parts: Any) -> Any:
    """A copy of an SBlock with some constructor arguments replaced."""
    return SBlock(*(parts[n] if n in parts else getattr(block, n) for n in _PARTS))
