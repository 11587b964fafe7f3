"""`LoopNest`: loops, blocks and accesses of one TensorIR function, read in one cheap walk.

The walk visits loops, sequences and blocks, and never descends into expressions twice: what only
depends on a block node is cached by the node itself, which TVM shares between schedule copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm.tirx as tx
import tvm_ffi
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import Add, FloorDiv, FloorMod, For, IntImm, Mul, SeqStmt, Sub, Var

__all__ = [
    "Access",
    "Block",
    "BlockFacts",
    "Buffer",
    "Linear",
    "Loop",
    "LoopNest",
    "NodeCache",
    "items",
    "read_nest",
]

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING = range(5)
SPATIAL, REDUCE = 0, 2


class Linear(NamedTuple):
    """An index expression as a linear form; floor division and modulo are approximated."""

    coefficients: dict[int, float]
    """by variable handle (`hash(var)`)"""
    constant: float
    exact: bool
    """no division, modulo or other non-linear part"""
    fuzzy: frozenset[int] = frozenset()
    """handles of the variables inside a non-linear part; their coefficients are approximations"""

    @property
    def indirect(self) -> bool:
        """Depends on data: a buffer is read inside the expression."""
        return -1 in self.fuzzy


class Buffer(NamedTuple):
    """A buffer as seen by accesses."""

    handle: int
    node: Any
    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str
    nbytes: int


class Access(NamedTuple):
    """One read or write region of a block."""

    buffer: Buffer
    region: tuple[tuple[Linear, int], ...]
    """for each dimension: start as a linear form of the block's iterators, extent (-1: not constant)"""
    strides: dict[int, float]
    """elements of the buffer that one step of an iterator (by handle) moves the access"""


class BlockFacts(NamedTuple):
    """What depends on a block node alone."""

    node: Any
    name: str
    iter_handles: tuple[int, ...]
    iter_types: tuple[int, ...]
    iter_extents: tuple[int, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    has_init: bool
    annotated: bool


@dataclass(slots=True)
class Loop:
    """A loop; `index` is its pre-order number, `parent` that of the loop around it or -1."""

    index: int
    node: Any
    var: int
    extent: int
    """-1 if not constant"""
    kind: int
    annotated: bool
    parent: int
    chain: tuple[int, ...]
    """loops from the outermost to this one, this one included"""
    body: str
    """"loop", "block" or "sequence" """
    blocks: list[int]
    """blocks below, in order"""


@dataclass(slots=True)
class Block:
    """A block with its place; `index` is its number in `get_child_blocks(root)`."""

    index: int
    realize: Any
    facts: BlockFacts
    bindings: tuple[Linear, ...]
    """value of each iterator as a linear form of loop variables"""
    chain: tuple[int, ...]
    """loops around it, outermost first"""
    positions: tuple[tuple[int, int], ...]
    """(loop or -1, position) for each sequence on the way from the root"""
    has_predicate: bool


class LoopNest:
    """All loops and blocks of a function, in pre-order."""

    __slots__ = ("blocks", "loops", "root")

    def __init__(self, root: Any, loops: list[Loop], blocks: list[Block]) -> None:
        self.root, self.loops, self.blocks = root, loops, blocks


class NodeCache:
    """Facts by node identity; holds the nodes alive so that handles stay unique; bounded."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.entries: dict[Any, tuple[Any, Any]] = {}

    def put(self, node: Any, value: Any) -> Any:
        return self.put_at(hash(node), node, value)

    def put_at(self, key: Any, nodes: Any, value: Any) -> Any:
        """Store `value` by a key made of handles of `nodes`."""
        if len(self.entries) >= self.limit:
            self.entries.clear()
        self.entries[key] = (nodes, value)
        return value


_LINEAR = NodeCache(1 << 12)
_FACTS = NodeCache(1 << 11)
_BUFFERS = NodeCache(1 << 10)


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


_EMPTY: dict[int, float] = {}


def linear(expr: Any) -> Linear:
    """`expr` as a linear form of variables."""
    if type(expr) is Var:
        return Linear({hash(expr): 1.0}, 0.0, True)
    if type(expr) is IntImm:
        return Linear(_EMPTY, float(expr.value), True)
    hit = _LINEAR.entries.get(hash(expr))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    coefficients: dict[int, float] = {}
    fuzzy: set[int] = set()
    constant = _collect(expr, coefficients, 1.0, fuzzy, False)
    made = Linear(coefficients, constant, not fuzzy, frozenset(fuzzy))
    return _LINEAR.put(expr, made)  # type: ignore[no-any-return]


def _buffer(node: Any) -> Buffer:
    hit = _BUFFERS.entries.get(hash(node))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    shape = tuple([s.value if type(s) is IntImm else -1 for s in items(node.shape)])
    size = 1
    for extent in shape:
        size *= extent
    dtype = str(node.dtype)
    bits = int("".join(filter(str.isdigit, dtype)) or 8)
    made = Buffer(hash(node), node, node.name, shape, dtype, node.scope(), size * bits // 8)
    return _BUFFERS.put(node, made)  # type: ignore[no-any-return]


_item = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_size = tvm_ffi.get_global_func("ffi.ArraySize")


def items(array: Any) -> list[Any]:
    """Elements of a TVM array, without the checks of its Python wrapper."""
    return [_item(array, i) for i in range(_size(array))]


_ACCESSES = NodeCache(1 << 12)
_ITERS = NodeCache(1 << 11)


def _access(region: Any) -> Access:
    """One region, cached by node: TVM shares those of one buffer when it replaces another."""
    hit = _ACCESSES.entries.get(hash(region))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    buffer = _buffer(region.source)
    found = []
    for part in items(region.region):
        extent = part.extent
        found.append((linear(part.min), extent.value if type(extent) is IntImm else -1))
    ranges = tuple(found)
    strides: dict[int, float] = {}
    step = 1
    for (start, _), size in zip(reversed(ranges), reversed(buffer.shape), strict=True):
        for handle, coefficient in start.coefficients.items():
            strides[handle] = strides.get(handle, 0.0) + coefficient * step
        step *= size
    return _ACCESSES.put(region, Access(buffer, ranges, strides))  # type: ignore[no-any-return]


def _iterators(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Handles, types and extents of the iterators of a block; cached by array."""
    handle = array.__chandle__()  # its hash would be that of its elements
    hit = _ITERS.entries.get(handle)
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    iters = items(array)
    made = (
        tuple([hash(iv.var) for iv in iters]),
        tuple([int(iv.iter_type) for iv in iters]),
        tuple([int(iv.dom.extent) for iv in iters]),
    )
    return _ITERS.put_at(handle, array, made)  # type: ignore[no-any-return]


def block_facts(node: Any) -> BlockFacts:
    """What depends on the block node alone; cached by node."""
    hit = _FACTS.entries.get(hash(node))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    handles, types, extents = _iterators(node.iter_vars)
    made = BlockFacts(
        node=node,
        name=node.name_hint,
        iter_handles=handles,
        iter_types=types,
        iter_extents=extents,
        reads=tuple([_access(r) for r in items(node.reads)]),
        writes=tuple([_access(r) for r in items(node.writes)]),
        has_init=node.init is not None,
        annotated=len(node.annotations) > 0,
    )
    return _FACTS.put(node, made)  # type: ignore[no-any-return]


_BODY = {For: "loop", SBlockRealize: "block", SeqStmt: "sequence"}
_LOOPS = NodeCache(1 << 12)
_SEQUENCES = NodeCache(1 << 10)


def _loop_facts(node: Any) -> tuple[int, int, int, bool, Any, type]:
    """Variable handle, extent, kind, annotated, body and its type; cached by node."""
    hit = _LOOPS.entries.get(hash(node))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    extent, body = node.extent, node.body
    made = (
        hash(node.loop_var),
        extent.value if type(extent) is IntImm else -1,
        int(node.kind),
        len(node.annotations) > 0,
        body,
        type(body),
    )
    return _LOOPS.put(node, made)  # type: ignore[no-any-return]


def _children(node: Any) -> tuple[tuple[Any, type], ...]:
    """Statements of a sequence with their types; cached by node."""
    hit = _SEQUENCES.entries.get(hash(node))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    made = tuple([(child, type(child)) for child in items(node.seq)])
    return _SEQUENCES.put(node, made)  # type: ignore[no-any-return]


def read_nest(mod: tx.PrimFunc | Any) -> LoopNest:
    """Loops and blocks of the function "main" of `mod`. Nested blocks are opaque."""
    root = mod["main"].body.block
    loops: list[Loop] = []
    blocks: list[Block] = []
    body = root.body
    _visit(body, type(body), (), (), loops, blocks)
    return LoopNest(root, loops, blocks)


def _visit(
    stmt: Any,
    kind: type,
    chain: tuple[int, ...],
    positions: tuple[tuple[int, int], ...],
    loops: list[Loop],
    blocks: list[Block],
) -> None:
    """Append what lies below `stmt`. No closure: it would be a reference cycle for each state."""
    while kind is For:
        var, extent, mark, annotated, body, below = _loop_facts(stmt)
        index = len(loops)
        around = chain[-1] if chain else -1
        chain = (*chain, index)
        shape = _BODY.get(below, "other")
        loops.append(Loop(index, stmt, var, extent, mark, annotated, around, chain, shape, []))
        stmt, kind = body, below
    if kind is SeqStmt:
        around = chain[-1] if chain else -1
        for i, (child, below) in enumerate(_children(stmt)):
            _visit(child, below, chain, (*positions, (around, i)), loops, blocks)
    elif kind is SBlockRealize:
        facts, bindings, guarded = _placed(stmt)
        index = len(blocks)
        for i in chain:
            loops[i].blocks.append(index)
        blocks.append(Block(index, stmt, facts, bindings, chain, positions, guarded))


_PLACED = NodeCache(1 << 11)


def _placed(realize: Any) -> tuple[BlockFacts, tuple[Linear, ...], bool]:
    """Facts of the block, bindings, and whether it has a predicate; cached by node."""
    hit = _PLACED.entries.get(hash(realize))
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    made = (
        block_facts(realize.block),
        tuple([linear(v) for v in items(realize.iter_values)]),
        type(realize.predicate) is not IntImm,
    )
    return _PLACED.put(realize, made)  # type: ignore[no-any-return]
