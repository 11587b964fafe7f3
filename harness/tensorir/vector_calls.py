"""Calls in a block that have a form as arithmetic (`elementary.py`), and blocks written with it."""

from __future__ import annotations

from functools import lru_cache
from inspect import signature
from typing import Any, NamedTuple

import tvm_ffi
from tvm.ir import Call
from tvm.tirx import Var

from tirgym.harness.tensorir.body_view import body_parts, body_view
from tirgym.harness.tensorir.elementary import FORMS
from tirgym.harness.tensorir.rewriting import with_parts

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


def body(block: Any) -> Body:
    """Calls, names and loads of SBlock `block`."""
    view = body_view(block)
    types = [dtype for name, dtype in view.calls if name in FORMS]
    written = types.count(DTYPE)
    return Body(written, len(types) - written, view.named, view.loads)


def with_vector_math(block: Any) -> Any:
    """A copy of SBlock `block` without the calls that have a form."""
    return with_parts(block, body=tvm_ffi.structural_map(block.body, (Call, _arithmetic)))


def _arithmetic(call: Any) -> Any:
    form = FORMS.get(getattr(call.op, "name", ""))
    return call if form is None or str(call.ty) != DTYPE else form(*call.args)


def size_with_vector_math(block: Any) -> int:
    """Nodes in the body of `with_vector_math(block)`."""
    view = body_view(block)
    return view.size + sum([_growth(name) for name, dtype in view.calls if dtype == DTYPE])


@lru_cache(maxsize=64)
def _growth(name: str) -> int:
    """Nodes that the form of a call has more than the call; 0 for one without a form.

    Forms name their arguments, so that each stands in them once.
    """
    form = FORMS.get(name)
    if form is None:
        return 0
    arguments = [Var("x", DTYPE) for _ in signature(form).parameters]
    return sum(1 for _ in body_parts(form(*arguments))) - len(arguments) - 1
