"""What one execution of a block costs in operations, read from its body once per block node."""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    BufferStore,
    Cast,
    Div,
    Evaluate,
    FloatImm,
    FloorDiv,
    FloorMod,
    IfThenElse,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Select,
    SeqStmt,
    Sub,
    Var,
)

from tirgym.harness.tensorir.nest import NodeCache

__all__ = ["BlockOps", "block_ops"]

_ARITHMETIC = {Add, Sub, Mul, Max, Min}
_COMPARE = {EQ, NE, LT, LE, GT, GE}
_LOGIC = {And, Or}
_VECTOR_CALLS = {"sqrt", "rsqrt", "fabs", "abs", "floor", "ceil", "trunc", "round", "nearbyint"}
"""Calls that x86 and ARM have vector instructions for."""
_FREE_CALLS = {"likely", "reinterpret", "assume", "undef"}


class BlockOps(NamedTuple):
    """Operations of one execution of a block's body, initialisation apart."""

    flops: int
    """arithmetic on values (index arithmetic apart); a multiply-add counts two"""
    vector_ops: int
    """instructions that run on full vectors; a multiply-add counts one"""
    divisions: int
    """divisions and square roots of values"""
    calls: int
    """calls of scalar mathematical functions (exp, tanh, …), one a lane"""
    branches: int
    """conditional parts"""
    index_ops: int
    """divisions and modulos in index expressions"""
    loads: dict[int, int]
    """number of loads by buffer handle"""
    stores: int
    accumulates: bool
    """the body loads what it stores to"""
    floating: bool
    """the stored value is floating point, whose sums cannot be reordered"""
    additive: bool
    """the update is a sum, as opposed to a maximum or something else"""


class _Counter:
    """Walks one body; every count is per execution."""

    def __init__(self) -> None:
        self.flops = self.vector_ops = self.divisions = self.calls = 0
        self.branches = self.index_ops = self.stores = 0
        self.loads: dict[int, int] = {}
        self.stored: list[Any] = []
        self._seen: set[tuple[int, int]] = set()

    def value(self, expr: Any) -> None:
        """Count the operations of a value expression."""
        kind = type(expr)
        if kind in (Var, IntImm, FloatImm):
            return
        if kind is TensorLoad:
            self._load(expr)
        elif kind in _ARITHMETIC:
            self.flops += 1
            fused = kind in (Add, Sub) and (type(expr.a) is Mul or type(expr.b) is Mul)
            self.vector_ops += 0 if fused else 1
            self.value(expr.a)
            self.value(expr.b)
        elif kind is Div:
            self.flops += 1
            self.divisions += 1
            self.value(expr.a)
            self.value(expr.b)
        elif kind in _COMPARE or kind in _LOGIC:
            self.vector_ops += 1
            self.value(expr.a)
            self.value(expr.b)
        elif kind is Call:
            self._call(expr)
        else:
            self._other(expr, kind)

    def _load(self, expr: Any) -> None:
        self.loads[hash(expr.source)] = self.loads.get(hash(expr.source), 0) + 1
        self._indices(expr.indices)

    def _indices(self, indices: Any) -> None:
        for index in indices:
            if type(index) is not Var:
                self._index(index)

    def _index(self, expr: Any) -> None:
        kind = type(expr)
        if kind in (Var, IntImm):
            return
        if kind in (FloorDiv, FloorMod, Mod, Div):
            self.index_ops += 1
        if kind is TensorLoad:
            self._load(expr)
            self.index_ops += 1
            return
        for part in ("a", "b", "value"):
            child = getattr(expr, part, None)
            if child is not None and not isinstance(child, int):
                self._index(child)

    def _call(self, expr: Any) -> None:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        if name == "if_then_else":
            self.branches += 1
        elif name in ("sqrt", "rsqrt"):
            self.flops += 1
            self.divisions += 1
        elif name in _VECTOR_CALLS:
            self.flops += 1
            self.vector_ops += 1
        elif name not in _FREE_CALLS:
            self.flops += 1
            self.calls += 1
        for argument in expr.args:
            self.value(argument)

    def _other(self, expr: Any, kind: type) -> None:
        parts: tuple[Any, ...]
        if kind is Select:
            self.vector_ops += 1
            parts = (expr.condition, expr.true_value, expr.false_value)
        elif kind is Cast:
            self.vector_ops += 1
            parts = (expr.value,)
        elif kind is Let:
            parts = (expr.value, expr.body)
        elif kind is Not:
            parts = (expr.a,)
        elif kind is Broadcast:
            parts = (expr.value,)
        elif kind in (FloorDiv, FloorMod, Mod):
            self.index_ops += 1
            parts = (expr.a, expr.b)
        else:
            self.vector_ops += 1
            parts = tuple(getattr(expr, "args", None) or ())
        for part in parts:
            self.value(part)

    def statement(self, stmt: Any) -> None:
        """Count a statement of a block body."""
        kind = type(stmt)
        if kind is BufferStore:
            self.stores += 1
            self.stored.append(stmt)
            self._indices(stmt.indices)
            self.value(stmt.value)
        elif kind is SeqStmt:
            for child in stmt.seq:
                self.statement(child)
        elif kind is IfThenElse:
            self.branches += 1
            self.value(stmt.condition)
            self.statement(stmt.then_case)
            if stmt.else_case is not None:
                self.statement(stmt.else_case)
        elif kind is Evaluate:
            self.value(stmt.value)
        else:
            value, body = getattr(stmt, "value", None), getattr(stmt, "body", None)
            if value is not None and not isinstance(value, str):
                self.value(value)
            if body is not None:
                self.statement(body)


_OPS = NodeCache(1 << 13)


def block_ops(node: Any) -> BlockOps:
    """Operations of one execution of block `node`; cached by node."""
    hit = _OPS.entries.get(hash(node))
    return hit[1] if hit is not None else _OPS.put(node, _count(node))  # type: ignore[no-any-return]


def _count(node: Any) -> BlockOps:
    counter = _Counter()
    counter.statement(node.body)
    handles = [hash(store.buffer) for store in counter.stored]
    accumulates = any(handle in counter.loads for handle in handles)
    value = counter.stored[0].value if counter.stored else None
    dtype = str(counter.stored[0].buffer.dtype) if counter.stored else "int32"
    return BlockOps(
        counter.flops,
        counter.vector_ops,
        counter.divisions,
        counter.calls,
        counter.branches,
        counter.index_ops,
        counter.loads,
        counter.stores,
        accumulates,
        dtype.startswith(("float", "bfloat")),
        type(value) is Add,
    )
