"""`Linear`: an index expression as a linear form of loop variables or iterators."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from tvm.ir.expr import TensorLoad
from tvm.tirx import Add, FloorDiv, FloorMod, IntImm, Mul, Sub, Var

__all__ = ["NO_VARIABLES", "Linear", "linear"]

NO_VARIABLES: frozenset[int] = frozenset()
"""One object for all: Python makes a new empty set each time, which the garbage collector visits."""


class Linear(NamedTuple):
    """An index expression as a linear form; floor division and modulo are approximated."""

    coefficients: dict[int, float]
    """by variable handle (`hash(var)`); shared, never changed"""
    constant: float
    exact: bool
    """no division, modulo or other non-linear part"""
    fuzzy: frozenset[int] = NO_VARIABLES
    """handles of the variables inside a non-linear part; their coefficients are approximations"""

    @property
    def indirect(self) -> bool:
        """Depends on data: a buffer is read inside the expression."""
        return -1 in self.fuzzy


def _collect(
    expr: Any, out: dict[int, float], scale: float, fuzzy: set[int], inside: bool
) -> float:
    """Add the coefficients of `scale * expr` to `out`; returns the constant part.

    `inside`: below a non-linear node, so that variables go into `fuzzy` too. A non-linear node
    adds 0 to `fuzzy`, a buffer that is read adds -1; neither is a handle.
    """
    kind = type(expr)
    if kind is Var:
        handle = hash(expr)
        out[handle] = out.get(handle, 0.0) + scale
        if inside:
            fuzzy.add(handle)
        return 0.0
    if kind is IntImm:
        return scale * expr.value  # type: ignore[no-any-return]
    if kind is Add or kind is Sub:
        right = scale if kind is Add else -scale
        left = _collect(expr.a, out, scale, fuzzy, inside)
        return left + _collect(expr.b, out, right, fuzzy, inside)
    if kind is Mul and type(expr.b) is IntImm:
        return _collect(expr.a, out, scale * expr.b.value, fuzzy, inside)
    if kind is Mul and type(expr.a) is IntImm:
        return _collect(expr.b, out, scale * expr.a.value, fuzzy, inside)
    fuzzy.add(-1 if kind is TensorLoad else 0)
    if kind is FloorDiv and type(expr.b) is IntImm:
        return _collect(expr.a, out, scale / expr.b.value, fuzzy, True)
    if kind is FloorMod:
        return _collect(expr.a, out, scale, fuzzy, True)
    for part in ("a", "b", "value", "condition", "true_value", "false_value"):
        child = getattr(expr, part, None)
        if child is not None and not isinstance(child, int | float):
            _collect(child, out, 0.0, fuzzy, True)
    for child in getattr(expr, "args", None) or getattr(expr, "indices", None) or ():
        _collect(child, out, 0.0, fuzzy, True)
    return 0.0


@lru_cache(maxsize=1 << 12)
def _of_variable(handle: int) -> Linear:
    """True of whatever variable has that handle, so that none need be kept alive."""
    return Linear({handle: 1.0}, 0.0, True)


@lru_cache(maxsize=1 << 10)
def _of_constant(value: int) -> Linear:
    return Linear({}, float(value), True)


def linear(expr: Any) -> Linear:
    """`expr` as a linear form of variables."""
    kind = type(expr)
    if kind is Var:
        return _of_variable(hash(expr))
    if kind is IntImm:
        return _of_constant(expr.value)
    coefficients: dict[int, float] = {}
    fuzzy: set[int] = set()
    constant = _collect(expr, coefficients, 1.0, fuzzy, False)
    return Linear(coefficients, constant, not fuzzy, frozenset(fuzzy) if fuzzy else NO_VARIABLES)
