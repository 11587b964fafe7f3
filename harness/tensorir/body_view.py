"""`BodyView`: what the body of a block says, from one walk over its expressions.

TVM shares bodies between blocks even where it makes new block nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx import (
    Add,
    Bind,
    BufferStore,
    Evaluate,
    FloatImm,
    For,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    SeqStmt,
    Var,
)
from tvm_ffi import structural_equal

from tirgym.harness.tensorir.linear import NO_VARIABLES, linear
from tirgym.harness.tensorir.node_cache import NodeCache, items
from tirgym.harness.tensorir.wmma import MMA_CALL

__all__ = ["BodyView", "body_parts", "body_view", "expression_size"]


class BodyView(NamedTuple):
    """What depends on the body of a block alone."""

    size: int
    """nodes, index expressions included"""
    one_store: bool
    accumulates: bool
    """one store, `x = x op term` with an associative, commutative op and a term without x, or what stands
    for loops around one: a product on tensor cores"""
    feeds_on_itself: bool
    """its one store reads the stored buffer"""
    opaque: bool
    """holds more than stores and named values, that is, comes from an intrinsic"""
    mirrored: frozenset[int]
    """buffers accessed at an index with a negative coefficient"""
    loads: dict[int, int]
    """loads written down, by buffer handle"""
    calls: tuple[tuple[str, str], ...]
    """operator name and dtype of each call"""
    kinds: tuple[tuple[str, int], ...]
    """types of the nodes outside of index expressions, leaves apart, with their numbers"""
    named: bool
    """holds named values (`Let`), which a program may define once"""


_BODIES = NodeCache()

_LEAVES = frozenset({Var, IntImm, FloatImm})
_PLAIN = frozenset({int, float, bool, str, type(None)})
_SINGLE = ("a", "b", "value", "condition", "true_value", "false_value", "body")
_SEVERAL = ("args", "indices", "seq")
_FIELDS: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}
"""those of `_SINGLE` and `_SEVERAL` that a type of node has"""


def _fields(node: Any, kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = _FIELDS[kind] = (
        tuple([part for part in _SINGLE if hasattr(node, part)]),
        tuple([part for part in _SEVERAL if hasattr(node, part)]),
    )
    return found


def _children(node: Any, kind: type) -> list[Any]:
    single, several = _FIELDS.get(kind) or _fields(node, kind)
    found = []
    for part in single:
        child = getattr(node, part)
        if type(child) not in _PLAIN:
            found.append(child)
    for part in several:
        array = getattr(node, part)
        if array is not None:
            found += items(array)
    return found


def body_parts(body: Any) -> Iterator[Any]:
    """All nodes in `body`, index expressions included."""
    stack = [body]
    while stack:
        node = stack.pop()
        yield node
        kind = type(node)
        if kind not in _LEAVES:
            stack += _children(node, kind)


class _Scan:
    """Counts what is in expressions and statements."""

    def __init__(self) -> None:
        self.size = 0
        self.loads: dict[int, int] = {}
        self.calls: list[tuple[str, str]] = []
        self.kinds: dict[type, int] = {}
        self.named = False
        self.mirrored: set[int] = set()

    def add(self, stack: list[Any], in_index: bool = False) -> None:
        """Count the nodes in `stack` and all below them."""
        while stack:
            node = stack.pop()
            self.size += 1
            kind = type(node)
            if kind in _LEAVES:
                continue
            if not in_index:
                self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if kind is TensorLoad:
                source = hash(node.source)
                self.loads[source] = self.loads.get(source, 0) + 1
                self.indexed(source, items(node.indices))
                continue
            if kind is BufferStore:
                self.indexed(hash(node.buffer), items(node.indices))
                stack.append(node.value)
                continue
            if kind is Call:
                self.calls.append((str(getattr(node.op, "name", "")), str(node.ty)))
            elif kind is Let:
                self.named = True
            stack += _children(node, kind)

    def indexed(self, buffer: int, indices: list[Any]) -> None:
        """Count the indices of an access of `buffer`; note one that falls while an iterator rises."""
        for index in indices:
            if type(index) in _LEAVES:
                self.size += 1
                continue
            if min(linear(index).coefficients.values(), default=0) < 0:
                self.mirrored.add(buffer)
            self.add([index], True)


def body_view(block: Any) -> BodyView:
    """The view of the body of SBlock `block`; cached by body."""
    body = block.body
    hit = _BODIES.entries.get(hash(body))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    scan = _Scan()
    one_store = type(body) is BufferStore
    own_loads = 0
    if one_store:
        target = hash(body.buffer)
        scan.add([body.value])
        own_loads = scan.loads.get(target, 0)
        scan.size += 1
        scan.indexed(target, items(body.indices))
    else:
        scan.add([body])
    parts = items(body.seq) if type(body) is SeqStmt else [body]
    made = BodyView(
        size=scan.size,
        one_store=one_store,
        accumulates=own_loads == 1 and _accumulates(body) if one_store else _adds_product(body),
        feeds_on_itself=own_loads > 0,
        opaque=not {type(part) for part in parts} <= {BufferStore, Bind},
        mirrored=frozenset(scan.mirrored) if scan.mirrored else NO_VARIABLES,
        loads=scan.loads,
        calls=tuple(scan.calls),
        kinds=tuple([(kind.__name__, count) for kind, count in scan.kinds.items()]),
        named=scan.named,
    )
    return _BODIES.put(body, made)  # type: ignore[no-any-return]


def _accumulates(store: Any) -> bool:
    """`x = x op term`, for a store that loads x once."""
    value, target = store.value, hash(store.buffer)
    if type(value) not in (Add, Mul, Max, Min):
        return False
    for own in (value.a, value.b):
        if type(own) is TensorLoad and hash(own.source) == target:
            pairs = zip(items(own.indices), items(store.indices), strict=True)
            return all(_same_index(one, other) for one, other in pairs)
    return False


def _adds_product(body: Any) -> bool:
    """A product of matrices that is added to one: the instruction, or loops around the one store."""
    if type(body) is Evaluate and type(body.value) is Call:
        return str(getattr(body.value.op, "name", "")) == MMA_CALL
    looped = type(body) is For
    while type(body) is For:
        body = body.body
    if not looped or type(body) is not BufferStore:
        return False
    target = hash(body.buffer)
    loads = [
        n for n in body_parts(body.value) if type(n) is TensorLoad and hash(n.source) == target
    ]
    return len(loads) == 1 and _accumulates(body)


def _same_index(one: Any, other: Any) -> bool:
    return hash(one) == hash(other) or bool(structural_equal(one, other))


def expression_size(node: Any) -> int:
    """Nodes in the body of a block, index expressions included; cached by body."""
    return body_view(node).size
