"""Calls in a block that have a form as arithmetic (`elementary.py`), and blocks written with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm_ffi
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import Let

from tirgym.harness.tensorir.block_view import body_parts, expression_size
from tirgym.harness.tensorir.elementary import FORMS
from tirgym.harness.tensorir.nest import NodeCache

__all__ = ["Body", "body", "with_vector_math"]

DTYPE = "float32"
"""Element type of the forms."""


class Body(NamedTuple):
    """What the body of a block says about its calls and named values."""

    written: int
    """calls with a form, in the type of the forms"""
    foreign: int
    """calls of the same functions in other types"""
    names: bool
    """holds named values (`Let`), which a program may define once"""
    loads: dict[int, int]
    """loads written down, by buffer handle"""


_BODIES = NodeCache(1 << 11)
_SIZES = NodeCache(1 << 11)


def body(block: Any) -> Body:
    """Calls, names and loads of SBlock `block`; cached by its body."""
    hit = _BODIES.entries.get(hash(block.body))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    written = foreign = 0
    names = False
    loads: dict[int, int] = {}
    for part in body_parts(block.body):
        kind = type(part)
        if kind is TensorLoad:
            source = hash(part.source)
            loads[source] = loads.get(source, 0) + 1
        elif kind is Let:
            names = True
        elif kind is Call and getattr(part.op, "name", "") in FORMS:
            written += str(part.ty) == DTYPE
            foreign += str(part.ty) != DTYPE
    return _BODIES.put(block.body, Body(written, foreign, names, loads))  # type: ignore[no-any-return]


def with_vector_math(block: Any) -> Any:
    """A copy of SBlock `block` without the calls that have a form."""
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tvm_ffi.structural_map(block.body, (Call, _arithmetic)),
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _arithmetic(call: Any) -> Any:
    form = FORMS.get(getattr(call.op, "name", ""))
    return call if form is None or str(call.ty) != DTYPE else form(*call.args)


def size_with_vector_math(block: Any) -> int:
    """Nodes in the body of `with_vector_math(block)`; cached by body."""
    hit = _SIZES.entries.get(hash(block.body))
    if hit is None:
        size = expression_size(with_vector_math(block))
        hit = _SIZES.put(block.body, size)
    return hit  # type: ignore[no-any-return]
