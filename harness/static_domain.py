"""How often conditions on loop variables hold, counted over the loops and not estimated.

A condition of a schedule (a predicate, the first step of a reduction) mentions few loop variables.
Clauses that share no variable are independent, so only the variables of each group are enumerated
and the counts multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm.tirx import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Sub,
    Var,
)

from tirgym.harness.static_ops import elements

__all__ = ["LIMIT", "Clause", "Count", "clauses", "evaluate", "times_true"]

LIMIT = 1 << 22
"""Most combinations of loop variables that are enumerated for one group of clauses."""

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    FloorDiv: np.floor_divide,
    FloorMod: np.mod,
    Min: np.minimum,
    Max: np.maximum,
    LT: np.less,
    LE: np.less_equal,
    GT: np.greater,
    GE: np.greater_equal,
    EQ: np.equal,
    NE: np.not_equal,
    And: np.logical_and,
    Or: np.logical_or,
}
"""What each node of an index expression means for integers."""
_WRAPPERS = ("likely", "bool")
"""Calls and casts that hand their argument on."""


class Clause(NamedTuple):
    """`expression == value`, or `expression` itself where `value` is None."""

    expression: Any
    value: int | None = None


class Count(NamedTuple):
    """How many iterations of a loop nest make all clauses true."""

    times: int
    exact: bool
    """False: some clause was taken as always true, so `times` is an upper bound"""


def clauses(condition: Any) -> list[Clause]:
    """The parts of a conjunction; none for a constant that is true."""
    if type(condition) is And:
        return clauses(condition.a) + clauses(condition.b)
    if type(condition) is IntImm and condition.value:
        return []
    return [Clause(condition)]


def times_true(parts: Iterable[Clause], extents: Mapping[int, int]) -> Count:
    """How often all of `parts` hold; `extents` are those of the loops, by variable handle.

    A part with anything else than integer arithmetic, or with more than LIMIT combinations, counts
    as true.
    """
    exact, times = True, 1
    seen: set[int] = set()
    for group, variables in _groups(parts):
        points = 1
        for handle in variables:
            points *= extents.get(handle, LIMIT + 1)
        if points > LIMIT:
            exact = False
            continue
        found = _count(group, sorted(variables, key=list(extents).index), extents)
        if found is None:
            exact = False
            continue
        times *= found
        seen |= variables
    for handle, extent in extents.items():
        if handle not in seen:
            times *= extent
    return Count(times, exact)


def _groups(parts: Iterable[Clause]) -> list[tuple[list[Clause], set[int]]]:
    """Clauses that share variables, directly or through others, with all their variables."""
    groups: list[tuple[list[Clause], set[int]]] = []
    for part in parts:
        members, variables = [part], _variables(part.expression)
        apart = []
        for other, used in groups:
            if used & variables:
                members, variables = other + members, used | variables
            else:
                apart.append((other, used))
        groups = [*apart, (members, variables)]
    return groups


def _variables(expression: Any) -> set[int]:
    """Handles of the variables in `expression`."""
    if type(expression) is Var:
        return {hash(expression)}
    found: set[int] = set()
    for child in _children(expression):
        found |= _variables(child)
    return found


def _children(expression: Any) -> Sequence[Any]:
    a = getattr(expression, "a", None)
    if a is not None:
        b = getattr(expression, "b", None)
        return (a,) if b is None else (a, b)
    value = getattr(expression, "value", None)
    if value is not None and not isinstance(value, int | float | str):
        return (value,)
    return elements(getattr(expression, "args", None) or ())


def _count(
    group: Sequence[Clause], variables: Sequence[int], extents: Mapping[int, int]
) -> int | None:
    """Combinations of `variables` for which all clauses hold; None for unknown operators."""
    axes = {
        handle: np.arange(extents[handle]).reshape(
            [-1 if place == at else 1 for place in range(len(variables))]
        )
        for at, handle in enumerate(variables)
    }
    holds: Any = np.ones([extents[handle] for handle in variables], bool)
    for part in group:
        value = evaluate(part.expression, axes)
        if value is None:
            return None
        holds = holds & (value.astype(bool) if part.value is None else value == part.value)
    return int(np.count_nonzero(holds))


def evaluate(expression: Any, axes: Mapping[int, NDArray[Any]]) -> NDArray[Any] | None:
    """The value of an index expression where its variables (by handle) have the values of `axes`.

    None for other operators than integer arithmetic, and for variables that are not in `axes`.
    """
    kind = type(expression)
    if kind is Var:
        return axes.get(hash(expression))
    if kind is IntImm:
        return np.asarray(expression.value)
    children = _children(expression)
    values = [value for child in children if (value := evaluate(child, axes)) is not None]
    if not values or len(values) < len(children):
        return None
    if kind is Not:
        return np.asarray(np.logical_not(values[0]))
    name = str(getattr(getattr(expression, "op", None), "name", "")).rpartition(".")[2]
    if name in _WRAPPERS or kind.__name__ == "Cast":
        return np.asarray(values[0])
    operator = _BINARY.get(kind)
    return None if operator is None else np.asarray(operator(*values))
