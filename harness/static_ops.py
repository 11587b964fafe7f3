"""What one execution of a block costs in operations, read from its body once per block node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tvm_ffi
from tvm.ir import Call, StringImm
from tvm.ir.expr import TensorLoad
from tvm.tirx import (
    Add,
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
    Select,
    SeqStmt,
    Shuffle,
    Sub,
    Var,
)

from tirgym.harness.tensorir.nest import NodeCache

__all__ = ["BlockOps", "block_ops", "elements"]

_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")

_ARITHMETIC = {Add, Sub, Mul, Max, Min}
_VECTOR_CALLS = {"sqrt", "rsqrt", "fabs", "abs", "floor", "ceil", "trunc", "round", "nearbyint"}
"""Calls that x86 and ARM have vector instructions for."""
_BIT_CALLS = {
    "shift_left",
    "shift_right",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
}
_FREE_CALLS = {"likely", "reinterpret", "assume", "undef"}


def elements(array: Any) -> list[Any]:
    """The elements of a TVM array, in a sixth of the time that its iterator takes."""
    return [_item(array, i) for i in range(len(array))]


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
    selects: int
    """choices between two computed values"""
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
    """Walks one body; every count is per execution.

    Expressions are numbered by structure, so that what inlining has copied counts once, as LLVM
    computes it once.
    """

    def __init__(self) -> None:
        self.flops = self.vector_ops = self.divisions = self.calls = 0
        self.branches = self.selects = self.index_ops = self.stores = 0
        self.loads: dict[int, int] = {}
        self.stored: list[Any] = []
        self._by_node: dict[int, int] = {}
        self._by_structure: dict[tuple[Any, ...], int] = {}

    def value(self, expr: Any) -> int:
        """Count the operations of a value expression that are new; returns its number."""
        node = hash(expr)
        known = self._by_node.get(node)
        if known is None:
            known = self._by_node[node] = self._number(expr, type(expr))
        return known

    def _number(self, expr: Any, kind: type) -> int:
        """The number of a value expression; counts it the first time that its structure is met."""
        if kind is Var:
            return self._known((kind, hash(expr)))[0]
        if kind is IntImm or kind is FloatImm:
            return self._known((kind, expr.value))[0]
        if kind is TensorLoad:
            return self._load(expr)
        if kind is Let:  # the variable is another name for its value
            self._by_node[hash(expr.var)] = self.value(expr.value)
            return self.value(expr.body)
        parts = _parts(expr, kind)
        name = _LABELS[kind](expr) if kind in _LABELS else ""
        number, new = self._known((kind, name, *(self.value(part) for part in parts)))
        if new:
            self._count(expr, kind, name)
        return number

    def _known(self, key: tuple[Any, ...]) -> tuple[int, bool]:
        number = self._by_structure.get(key)
        if number is not None:
            return number, False
        number = self._by_structure[key] = len(self._by_structure)
        return number, True

    def _count(self, expr: Any, kind: type, name: str) -> None:
        if kind in _ARITHMETIC:
            self.flops += 1
            fused = kind in (Add, Sub) and (type(expr.a) is Mul or type(expr.b) is Mul)
            self.vector_ops += 0 if fused else 1
        elif kind is Div:
            self.flops += 1
            self.divisions += 1
        elif kind is Call:
            self._count_call(name)
        elif kind in (FloorDiv, FloorMod, Mod):
            self.index_ops += 1
        elif kind not in (Not, Broadcast):
            self.vector_ops += 1
            self.selects += kind is Select

    def _count_call(self, name: str) -> None:
        if name == "if_then_else":
            self.branches += 1
        elif name in ("sqrt", "rsqrt"):
            self.flops += 1
            self.divisions += 1
        elif name in _VECTOR_CALLS:
            self.flops += 1
            self.vector_ops += 1
        elif name in _BIT_CALLS:
            self.vector_ops += 1
        elif name not in _FREE_CALLS:
            self.flops += 1
            self.calls += 1

    def _load(self, expr: Any) -> int:
        indices = tuple(self.index(index) for index in elements(expr.indices))
        handle = hash(expr.source)
        number, new = self._known((TensorLoad, handle, *indices))
        if new:
            self.loads[handle] = self.loads.get(handle, 0) + 1
        return number

    def index(self, expr: Any) -> int:
        """Count the divisions of an index expression; returns its number."""
        kind = type(expr)
        if kind is TensorLoad:
            return self._load(expr)
        if kind is Var or kind is IntImm:
            return self._number(expr, kind)
        parts = _parts(expr, kind)
        number, new = self._known((kind, "index", *(self.index(part) for part in parts)))
        if new and kind in (FloorDiv, FloorMod, Mod, Div):
            self.index_ops += 1
        return number

    def statement(self, stmt: Any) -> None:
        """Count a statement of a block body."""
        kind = type(stmt)
        if kind is BufferStore:
            self.stores += 1
            self.stored.append(stmt)
            for index in elements(stmt.indices):
                self.index(index)
            self.value(stmt.value)
        elif kind is SeqStmt:
            for child in elements(stmt.seq):
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


def _call_name(expr: Any) -> str:
    return str(getattr(expr.op, "name", "")).rpartition(".")[2]


_LABELS: dict[type, Callable[[Any], str]] = {
    Call: _call_name,
    Cast: lambda expr: str(expr.ty),
    Shuffle: lambda expr: " ".join(str(lane.value) for lane in elements(expr.indices)),
}
"""What tells expressions of one kind with the same operands apart."""

_PARTS = {
    Select: ("condition", "true_value", "false_value"),
    Cast: ("value",),
    Broadcast: ("value",),
    Not: ("a",),
}


def _parts(expr: Any, kind: type) -> tuple[Any, ...]:
    """The operands of an expression."""
    if kind is Call:
        return tuple(
            argument for argument in elements(expr.args) if type(argument) is not StringImm
        )
    if kind is Shuffle:
        return tuple(elements(expr.vectors))
    names = _PARTS.get(kind)
    if names is not None:
        return tuple(getattr(expr, name) for name in names)
    a = getattr(expr, "a", None)
    return () if a is None else (a, expr.b)


_OPS = NodeCache()


def block_ops(node: Any) -> BlockOps:
    """Operations of one execution of block `node`; cached by its body, which new blocks share."""
    body = node.body
    hit = _OPS.entries.get(hash(body))
    return hit if hit is not None else _OPS.put(body, _count(body))  # type: ignore[no-any-return]


def _count(body: Any) -> BlockOps:
    counter = _Counter()
    counter.statement(body)
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
        counter.selects,
        counter.index_ops,
        counter.loads,
        counter.stores,
        accumulates,
        dtype.startswith(("float", "bfloat")),
        type(value) is Add,
    )
