"""Types, casts and calls that a program uses: what may not change under a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm.ir import Call, StringImm
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, Cast, For, IfThenElse, IntImm, Select, SeqStmt, Var

from tirgym.harness.static_ops import elements
from tirgym.harness.tensorir.nest import NodeCache

__all__ = ["BodyFacts", "body_facts", "function_facts", "loaded", "parameters", "plain_loads"]

FOREIGN = ("extern", "packed", "call_llvm", "call_spirv", "inline_asm", "call_source")
"""Parts of the names of operators that run code from outside the IR."""
PRAGMAS = ("import", "extern")
"""Parts of the names of annotations that do."""


@dataclass(frozen=True, slots=True)
class BodyFacts:
    """What a statement uses, blocks below included."""

    casts: frozenset[tuple[str, str]]
    """(from, to)"""
    foreign: frozenset[str]
    """calls of code from outside the IR: "operator name" """
    stores: frozenset[str]
    """dtypes of stored buffers"""
    accumulators: frozenset[str]
    """dtypes of buffers whose old value the stored one depends on"""
    opaque: frozenset[str]
    """kinds of statements that the loop walk does not understand"""


class _Collector:
    def __init__(self) -> None:
        self.casts: set[tuple[str, str]] = set()
        self.foreign: set[str] = set()
        self.stores: set[str] = set()
        self.accumulators: set[str] = set()
        self.opaque: set[str] = set()

    def statement(self, stmt: Any) -> None:
        """Collect from a statement and everything below it."""
        kind = type(stmt)
        if kind is For:
            self._annotations(stmt.annotations)
            self.statement(stmt.body)
        elif kind is SeqStmt:
            for child in stmt.seq:
                self.statement(child)
        elif kind is SBlockRealize:
            self.merge(body_facts(stmt.block))
            for value in (*stmt.iter_values, stmt.predicate):
                self.expression(value)
        elif kind is BufferStore:
            self._store(stmt)
        else:
            if kind is not IfThenElse:
                self.opaque.add(kind.__name__)
            for part in ("condition", "value", "extent"):
                child = getattr(stmt, part, None)
                if child is not None and not isinstance(child, str):
                    self.expression(child)
            for part in ("then_case", "else_case", "body"):
                child = getattr(stmt, part, None)
                if child is not None:
                    self.statement(child)

    def merge(self, facts: BodyFacts) -> None:
        """Add the facts of a block."""
        self.casts |= facts.casts
        self.foreign |= facts.foreign
        self.stores |= facts.stores
        self.accumulators |= facts.accumulators
        self.opaque |= facts.opaque

    def _store(self, stmt: Any) -> None:
        dtype = str(stmt.buffer.dtype)
        self.stores.add(dtype)
        loaded: set[int] = set()
        for expr in (stmt.value, *stmt.indices):
            loaded |= self.expression(expr)
        if hash(stmt.buffer) in loaded:
            self.accumulators.add(dtype)

    def expression(self, expr: Any) -> set[int]:
        """Collect from an expression; returns the handles of the buffers that it loads."""
        loaded: set[int] = set()
        todo = [expr]
        while todo:
            node = todo.pop()
            kind = type(node)
            if kind is Var or kind is IntImm:
                continue
            if kind is Cast:
                self.casts.add((str(node.value.ty), str(node.ty)))
            elif kind is Call:
                self._call(node)
            source = getattr(node, "source", None)
            if source is not None:
                loaded.add(hash(source))
            todo.extend(_children(node))
        return loaded

    def _call(self, node: Any) -> None:
        name = str(getattr(node.op, "name", None) or getattr(node.op, "name_hint", node.op))
        if any(part in name for part in FOREIGN):
            target = next((str(a.value) for a in node.args if type(a) is StringImm), "")
            self.foreign.add(f"{name} {target}".strip())

    def _annotations(self, annotations: Any) -> None:
        for name in annotations:
            if any(part in str(name) for part in PRAGMAS):
                self.foreign.add(f"annotation {name}")

    def block(self, node: Any) -> None:
        """Collect from a block."""
        self._annotations(node.annotations)
        if node.init is not None:
            self.statement(node.init)
        self.statement(node.body)

    def facts(self) -> BodyFacts:
        """What was collected."""
        return BodyFacts(
            frozenset(self.casts),
            frozenset(self.foreign),
            frozenset(self.stores),
            frozenset(self.accumulators),
            frozenset(self.opaque),
        )


def _children(node: Any) -> Iterator[Any]:
    for part in ("a", "b", "value", "condition", "true_value", "false_value", "body", "base"):
        child = getattr(node, part, None)
        if child is not None and not isinstance(child, int | float | str):
            yield child
    for part in ("args", "indices"):
        array = getattr(node, part, None)
        if array is not None:
            yield from elements(array)


_FACTS = NodeCache()


def body_facts(block: Any) -> BodyFacts:
    """Facts of one block node and all below it; cached by node."""
    hit = _FACTS.entries.get(hash(block))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    collector = _Collector()
    collector.block(block)
    return _FACTS.put(block, collector.facts())  # type: ignore[no-any-return]


_LOADS = NodeCache()


def plain_loads(block: Any) -> tuple[tuple[str, tuple[int, ...], tuple[Any, ...]], ...]:
    """(buffer name, shape, indices) of the loads of a block that no condition guards; cached."""
    hit = _LOADS.entries.get(hash(block))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    found: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = []
    todo = [block.body]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind in (Var, IntImm):
            continue
        if kind in (IfThenElse, Select):
            todo.append(node.condition)
            continue
        if kind is Call and "if_then_else" in str(getattr(node.op, "name", "")):
            todo.append(node.args[0])
            continue
        if kind is TensorLoad:
            shape = tuple(s.value if type(s) is IntImm else -1 for s in node.source.shape)
            found.append((str(node.source.name), shape, tuple(node.indices)))
        todo.extend(_children(node))
        todo.extend(getattr(node, "seq", None) or ())
    return _LOADS.put(block, tuple(found))  # type: ignore[no-any-return]


def loaded(block: Any) -> tuple[tuple[Any, tuple[Any, ...]], ...]:
    """(buffer, indices) of all loads in the body of a block, guarded ones too."""
    found: list[tuple[Any, tuple[Any, ...]]] = []
    todo = [block.body]
    while todo:
        node = todo.pop()
        if type(node) is TensorLoad:
            found.append((node.source, tuple(elements(node.indices))))
        todo.extend(_children(node))
        todo.extend(getattr(node, "seq", None) or ())
    return tuple(found)


def function_facts(mod: Any) -> BodyFacts:
    """Facts of the function "main" of `mod`."""
    collector = _Collector()
    collector.statement(mod["main"].body)
    return collector.facts()


def parameters(mod: Any) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape (-1: not constant) and dtype of each parameter of "main", in order."""
    return tuple(
        (
            tuple(s.value if type(s) is IntImm else -1 for s in getattr(p, "shape", ())),
            str(getattr(p, "dtype", "handle")),
        )
        for p in mod["main"].params
    )
