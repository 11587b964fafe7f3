"""Counts what a TensorIR program does by running its loops in Python: no formulas, tiny shapes only.

Independent of `tirgym.harness.static_*`: reads TVM's nodes directly and shares no code with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad

__all__ = ["Tally", "element_bytes", "lines_touched", "tally"]

SERIAL, PARALLEL, VECTORIZED, UNROLLED = range(4)
ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min, tirx.Div)
NOT_MATHEMATICS = (
    "if_then_else", "likely", "reinterpret", "shift_left", "shift_right", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_not",
)  # fmt: skip
VECTOR_CALLS = (
    "sqrt", "rsqrt", "fabs", "abs", "floor", "ceil", "trunc", "round", "nearbyint",
)  # fmt: skip

Env = dict[int, int]
Index = Callable[[Env], int]


@dataclass
class Tally:
    """What one call did."""

    totals: Counter[str] = field(default_factory=Counter)
    loads: Counter[str] = field(default_factory=Counter)
    """bytes by buffer name"""
    stores: Counter[str] = field(default_factory=Counter)
    strides: dict[Any, tuple[Counter[int], int]] = field(default_factory=dict)
    """by access: how far it jumped between iterations of the innermost loop, and all its bytes"""
    boxes: dict[int, dict[Any, list[list[int]]]] = field(default_factory=dict)
    """by handle of a temporary: for each state of the loops around all its uses, lowest and highest indices"""
    temporaries: Counter[str] = field(default_factory=Counter)
    """bytes by name: what one state of the loops around all uses needs"""

    @property
    def strided_share(self) -> float:
        """Share of the bytes that a step of the innermost loop puts more than one element away."""
        moving = far = 0.0
        for jumps, nbytes in self.strides.values():
            moving += nbytes
            wide = sum(count for jump, count in jumps.items() if abs(jump) > 1)
            far += nbytes * wide / max(1, jumps.total())
        return far / moving if moving else 0.0


def element_bytes(buffer: Any) -> int:
    """Bytes of one element."""
    return int(tvm.DataType(str(buffer.dtype)).bits) // 8


def tally(mod: Any) -> Tally:
    """Run the function "main" of `mod` and count."""
    root = mod["main"].body.block
    runner = _Runner(root)
    runner.run(root.body, ())
    made = runner.tally
    made.totals["statements"] = _statements(root.body, ())
    made.totals["loops"] = len(list(_find(root.body, tirx.For)))
    made.totals["blocks"] = len(runner.blocks)
    alignment = dict(_alignments(root.body))
    for buffer in root.alloc_buffers:
        boxes = made.boxes[hash(buffer)].values()
        sizes = [
            max((high[axis] - low[axis] + 1 for low, high in boxes), default=0)
            for axis in range(len(buffer.shape))
        ]
        nbytes = _padded(sizes, alignment.get(hash(buffer))) * element_bytes(buffer)
        made.temporaries[str(buffer.name)] += nbytes
        made.totals["local_bytes"] += nbytes if str(buffer.scope()) != "global" else 0
    for inner in _find(root.body, tirx.AllocBuffer):
        nbytes = math.prod(map(int, inner.buffer.shape)) * element_bytes(inner.buffer)
        made.temporaries[str(inner.buffer.name)] = nbytes
        made.totals["local_bytes"] += nbytes if str(inner.buffer.scope()) != "global" else 0
    return made


def lines_touched(mod: Any, line_bytes: int = 64) -> list[tuple[str, int]]:
    """(buffer name, number of the cache line) of each access of one call, in order."""
    runner = _Runner(mod["main"].body.block, line_bytes)
    runner.run(mod["main"].body.block.body, ())
    return runner.lines


def _padded(sizes: list[int], alignment: tuple[int, int, int] | None) -> int:
    """Elements of a buffer whose rows may be aligned."""
    stride, strides = 1, []
    for axis in reversed(range(len(sizes))):
        if alignment is not None and axis == alignment[0]:
            while stride % alignment[1] != alignment[2] % alignment[1]:
                stride += 1
        strides.append(stride)
        stride *= sizes[axis]
    return sizes[0] * strides[-1] if sizes else 1


class _Runner:
    def __init__(self, root: Any, line_bytes: int = 0) -> None:
        self.tally = Tally()
        self.line_bytes = line_bytes
        self.lines: list[tuple[str, int]] = []
        self.blocks: dict[int, _Block] = {}
        self.env: Env = {}
        self.last: dict[Any, int] = {}
        self.shared = _loops_around_all_uses(root)
        for buffer in root.alloc_buffers:
            self.tally.boxes[hash(buffer)] = {}

    def run(self, stmt: Any, loops: tuple[Any, ...]) -> None:
        if isinstance(stmt, tirx.For):
            extent, variable, inner = int(stmt.extent), hash(stmt.loop_var), (*loops, stmt)
            kept = int(stmt.kind) in (SERIAL, PARALLEL) and extent > 1
            self.tally.totals["iterations"] += extent if kept and not _pragma(loops, stmt) else 0
            body = stmt.body
            for value in range(extent):
                self.env[variable] = value
                self.run(body, inner)
        elif isinstance(stmt, tirx.SeqStmt):
            for child in stmt.seq:
                self.run(child, loops)
        else:
            known = self.blocks.get(hash(stmt))
            if known is None:
                known = self.blocks[hash(stmt)] = _Block(stmt, loops)
            self.block(known)

    def block(self, block: _Block) -> None:
        env, totals = self.env, self.tally.totals
        totals["predicates"] += block.guarded
        if not block.predicate(env):
            return
        for name, count in block.work.items():
            totals[name] += count
        for handle, value in block.bindings:
            env[handle] = value(env)
        moved = [*block.loads, *block.stores]
        if block.initialises and all(env[handle] == start for handle, start in block.reductions):
            moved += block.stores
        for place, (buffer, name, write, nbytes, shape, indices) in enumerate(moved):
            at = tuple([index(env) for index in indices])
            (self.tally.stores if write else self.tally.loads)[name] += nbytes
            offset = 0
            for size, index in zip(shape, at, strict=True):
                offset = offset * size + index
            if self.line_bytes:
                self.lines.append((name, offset * nbytes // self.line_bytes))
            self._stride((block.number, place), offset, nbytes, block.innermost)
            if buffer in self.tally.boxes:
                self._box(buffer, at, shape)

    def _stride(self, key: Any, offset: int, nbytes: int, innermost: int) -> None:
        if not innermost:
            return
        jumps, total = self.tally.strides.get(key) or (Counter(), 0)
        if self.env[innermost] > 0 and key in self.last:
            jumps[offset - self.last[key]] += 1
        self.last[key] = offset
        self.tally.strides[key] = jumps, total + nbytes

    def _box(self, buffer: int, at: tuple[int, ...], shape: list[int]) -> None:
        state = tuple([self.env[loop] for loop in self.shared[buffer]])
        box = self.tally.boxes[buffer].setdefault(state, [list(at), list(at)])
        for axis, index in enumerate(at):
            index = min(index, shape[axis] - 1)  # what a condition guards may lie outside
            box[0][axis] = min(box[0][axis], index)
            box[1][axis] = max(box[1][axis], index)


Move = tuple[int, str, bool, int, list[int], list[Index]]
"""Handle and name of the buffer, whether it is a store, bytes, shape, and index functions."""


class _Block:
    """One block with its expressions turned into Python functions."""

    def __init__(self, realize: Any, loops: tuple[Any, ...]) -> None:
        block = realize.block
        self.number = hash(realize)
        long_loops = [hash(loop.loop_var) for loop in loops if int(loop.extent) > 1]
        self.innermost = long_loops[-1] if long_loops else 0
        self.guarded = 0 if isinstance(realize.predicate, tirx.IntImm) else 1
        self.predicate = _compile(realize.predicate)
        self.bindings = [
            (hash(iterator.var), _compile(value))
            for iterator, value in zip(block.iter_vars, realize.iter_values, strict=True)
        ]
        self.reductions = [
            (hash(i.var), int(i.dom.min)) for i in block.iter_vars if int(i.iter_type) == 2
        ]
        self.initialises = block.init is not None
        intrinsic = "call_llvm" in str(block.body)
        kinds = {int(loop.kind) for loop in loops}
        self.work = {
            **({} if intrinsic else _work(block.body)),
            "executions": 1,
            "first_steps": int(self.initialises),
            "vector_executions": int(intrinsic or VECTORIZED in kinds),
            "parallel_executions": int(PARALLEL in kinds),
        }
        if intrinsic:
            self.loads = [_region(region, False) for region in block.reads]
            self.stores = [_region(region, True) for region in block.writes]
            return
        loads = {str(load): load for load in _find(block.body, TensorLoad)}  # what reads alike once
        stores = _find(block.body, tirx.BufferStore)
        self.loads = [_move(load.source, False, load.indices) for load in loads.values()]
        self.stores = [_move(store.buffer, True, store.indices) for store in stores]


def _move(buffer: Any, write: bool, indices: Any) -> Move:
    shape = [int(size) for size in buffer.shape]
    functions = [_compile(index) for index in indices]
    return hash(buffer), str(buffer.name), write, element_bytes(buffer), shape, functions


def _region(region: Any, write: bool) -> Move:
    whole = _move(region.source, write, [part.min for part in region.region])
    elements = math.prod(int(part.extent) for part in region.region)
    return (*whole[:3], whole[3] * elements, *whole[4:])


def _children(node: Any) -> Iterator[Any]:
    for part in (
        "a", "b", "value", "condition", "true_value", "false_value", "then_case", "else_case",
        "body", "block",
    ):  # fmt: skip
        child = getattr(node, part, None)
        if isinstance(child, tvm.runtime.Object):
            yield child
    for part in ("args", "indices", "seq"):
        yield from getattr(node, part, None) or ()


def _find(node: Any, kind: type) -> Iterator[Any]:
    if isinstance(node, kind):
        yield node
    for child in _children(node):
        yield from _find(child, kind)


def _work(body: Any) -> dict[str, int]:
    """Operations of one execution: each expression that reads the same counts once."""
    seen: dict[str, Any] = {}
    branches = 0
    stack = [(body, False)]
    while stack:
        node, indexing = stack.pop()
        branches += isinstance(node, tirx.IfThenElse)
        if not indexing:
            seen[str(node)] = node
        below = isinstance(node, TensorLoad)
        for child in _children(node):
            is_index = isinstance(node, tirx.BufferStore) and not child.same_as(node.value)
            stack.append((child, indexing or below or is_index))
    nodes = list(seen.values())
    names = [str(node.op.name).rpartition(".")[2] for node in nodes if isinstance(node, Call)]
    return {
        "flops": sum(isinstance(node, ARITHMETIC) for node in nodes)
        + sum(name not in NOT_MATHEMATICS for name in names),
        "calls": sum(name not in (*NOT_MATHEMATICS, *VECTOR_CALLS) for name in names),
        "branches": branches + names.count("if_then_else"),
        "selects": sum(isinstance(node, tirx.Select) for node in nodes),
    }


_OPERATORS = {
    tirx.Add: "({} + {})", tirx.Sub: "({} - {})", tirx.Mul: "({} * {})",
    tirx.FloorDiv: "({} // {})", tirx.FloorMod: "({} % {})", tirx.Min: "min({}, {})",
    tirx.Max: "max({}, {})", tirx.LT: "({} < {})", tirx.LE: "({} <= {})", tirx.GT: "({} > {})",
    tirx.GE: "({} >= {})", tirx.EQ: "({} == {})", tirx.NE: "({} != {})", tirx.And: "({} and {})",
    tirx.Or: "({} or {})",
}  # fmt: skip


def _source(expr: Any) -> str:
    if isinstance(expr, tirx.Var):
        return f"env[{hash(expr)}]"
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, tirx.Cast):
        return _source(expr.value)
    return _OPERATORS[type(expr)].format(_source(expr.a), _source(expr.b))


def _compile(expr: Any) -> Index:
    return eval(f"lambda env: {_source(expr)}")  # type: ignore[no-any-return]  # our own text


def _steps(stmt: Any) -> int:
    """Statements below, with every loop unrolled."""
    if isinstance(stmt, tirx.For):
        return int(stmt.extent) * _steps(stmt.body)
    if isinstance(stmt, tirx.SeqStmt):
        return sum(map(_steps, stmt.seq))
    return 1 if stmt.block.init is None else 2


def _pragma(loops: tuple[Any, ...], loop: Any) -> bool:
    """Whether an unroll pragma on `loop` or around it reaches it."""
    limits = [
        int(each.annotations["pragma_auto_unroll_max_step"])
        for each in (*loops, loop)
        if "pragma_auto_unroll_max_step" in each.annotations
    ]
    return bool(limits) and _steps(loop) <= limits[-1]


def _statements(stmt: Any, loops: tuple[Any, ...]) -> int:
    """Stores in the code after unrolling."""
    if isinstance(stmt, tirx.For):
        copies = int(stmt.extent) if int(stmt.kind) == UNROLLED or _pragma(loops, stmt) else 1
        return copies * _statements(stmt.body, (*loops, stmt))
    if isinstance(stmt, tirx.SeqStmt):
        return sum(_statements(child, loops) for child in stmt.seq)
    inside = len(list(_find(stmt.block.body, tirx.BufferStore)))
    return inside if stmt.block.init is None else 2 * inside


def _uses(stmt: Any, loops: tuple[int, ...] = ()) -> Iterator[tuple[int, tuple[int, ...]]]:
    if isinstance(stmt, tirx.For):
        yield from _uses(stmt.body, (*loops, hash(stmt.loop_var)))
    elif isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from _uses(child, loops)
    else:
        for region in (*stmt.block.reads, *stmt.block.writes):
            yield hash(region.source), loops


def _loops_around_all_uses(root: Any) -> dict[int, tuple[int, ...]]:
    """Loops that all uses of each buffer (by handle) have in common."""
    found: dict[int, tuple[int, ...]] = {}
    for buffer, loops in _uses(root.body):
        common = found.get(buffer, loops)
        same = 0
        while same < min(len(common), len(loops)) and common[same] == loops[same]:
            same += 1
        found[buffer] = loops[:same]
    return found


def _alignments(stmt: Any) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(axis, factor, offset) of aligned buffers, by handle."""
    if isinstance(stmt, tirx.For):
        yield from _alignments(stmt.body)
    elif isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from _alignments(child)
    elif "buffer_dim_align" in stmt.block.annotations:
        for which, axis, factor, offset in stmt.block.annotations["buffer_dim_align"]:
            buffer = hash(stmt.block.writes[int(which)].source)
            yield buffer, (int(axis), int(factor), int(offset))
