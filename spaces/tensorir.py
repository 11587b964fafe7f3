"""`TensorIREncoder`: TensorIR programs as graphs and as numbered loop trees.

Hot path: everything that depends on a block and its bindings alone is computed once for each
`SBlockRealize` node, which TVM shares between schedule copies.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import tvm.tirx as tx
from numpy.typing import NDArray
from tvm.ir.expr import Call, Expr, TensorLoad

from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import REDUCE, SPATIAL, Access, Block, Buffer, LoopNest
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import (
    BOUND,
    COLUMNS,
    EDGE_FEATURES,
    NODE_FEATURES,
    EdgeType,
    IRGraph,
    NodeType,
)
from tirgym.spaces.hardware import hardware_features

__all__ = ["TensorIREncoder"]

_LOG = [math.log2(1 + x) / 16 for x in range(1 << 14)]
_POWER = [0.0, *(math.log2(1 + (x & -x)) / 16 for x in range(1, 1 << 14))]
_KINDS = [tuple(float(kind == i) for i in range(5)) for kind in range(5)]
_BODIES = {"loop": (1.0, 0.0, 0.0), "block": (0.0, 1.0, 0.0), "sequence": (0.0, 0.0, 1.0)}
_WIDTH = len(NODE_FEATURES)
_CACHE_LIMIT = 1 << 13


def _log(x: float) -> float:
    return _LOG[int(x)] if 0 <= x < 1 << 14 else math.log2(1 + max(x, 0)) / 16


class _View(NamedTuple):
    """What depends on a block and its bindings alone."""

    realize: Any
    """held, so that its handle stays unique"""
    head: tuple[float, ...]
    """block features before `depth`"""
    tail: tuple[float, ...]
    """block features after `depth`"""
    accesses: tuple[tuple[int, int, Buffer], ...]
    """edge type, buffer handle and buffer of each read, then of each write"""
    access_rows: NDArray[np.float32]
    """(accesses, EDGE_FEATURES)"""
    strides: tuple[tuple[int, int, int], ...]
    """edge type, loop variable handle, buffer handle"""
    stride_rows: NDArray[np.float32]
    """(strides, EDGE_FEATURES)"""
    spatial: tuple[int, ...]
    """handles of loop variables that move a spatial iterator"""
    reduce: tuple[int, ...]
    """handles of loop variables that move a reduction iterator"""
    instances: int
    """product of the iterator extents"""


_views: dict[int, _View] = {}
_operations: dict[int, tuple[Any, tuple[float, ...]]] = {}

_PLACE: dict[type, int] = {
    tx.Add: 0,
    tx.Sub: 0,
    tx.Mul: 1,
    tx.Div: 2,
    tx.FloorDiv: 2,
    tx.Mod: 2,
    tx.FloorMod: 2,
    Call: 3,
    **dict.fromkeys((tx.Max, tx.Min, tx.Select), 4),
    **dict.fromkeys((tx.LT, tx.LE, tx.GT, tx.GE, tx.EQ, tx.NE, tx.And, tx.Or, tx.Not), 4),
    TensorLoad: 5,
}
_CHILDREN = ("a", "b", "value", "condition", "true_value", "false_value", "body")


def _count(node: Any, counts: list[int]) -> None:
    """Add the operations under `node`, index expressions apart, to `counts`."""
    place = _PLACE.get(type(node))
    if place is not None:
        counts[place] += 1
    if place == 5:
        return
    children = [getattr(node, name, None) for name in _CHILDREN]
    if place == 3:
        children.extend(node.args)
    elif isinstance(node, tx.SeqStmt):
        children.extend(node.seq)
    for child in children:
        if isinstance(child, Expr | tx.Stmt):
            _count(child, counts)


def _block_operations(node: Any) -> tuple[float, ...]:
    """adds, multiplies, divides, calls, selects and loads of one instance of a block, each / 8."""
    hit = _operations.get(hash(node))
    if hit is None:
        counts = [0] * 6
        _count(node.body, counts)
        if len(_operations) >= _CACHE_LIMIT:
            _operations.clear()
        hit = _operations[hash(node)] = (node, tuple(count / 8 for count in counts))
    return hit[1]


def _stride_row(stride: float, exact: bool) -> tuple[float, ...]:
    size = abs(stride)
    return (_log(size), float(stride < 0), float(size == 1), float(size == 0), float(exact), 0.0)


def _strides(access: Access, block: Block) -> dict[int, tuple[float, bool]]:
    """Elements that one iteration of each loop variable moves `access`, and whether that is exact."""
    straight = all(start.exact for start, _ in access.region)
    found: dict[int, tuple[float, bool]] = {}
    for iterator, binding in zip(block.facts.iter_handles, block.bindings, strict=True):
        step = access.strides.get(iterator)
        if step is None:
            continue
        for var, coefficient in binding.coefficients.items():
            before, exact = found.get(var, (0.0, True))
            found[var] = before + step * coefficient, exact and straight and binding.exact
    return found


def _moved_by(block: Block, kind: int) -> tuple[int, ...]:
    """Loop variables that move an iterator of `kind`, each once, in order of appearance."""
    pairs = zip(block.facts.iter_types, block.bindings, strict=True)
    return tuple(dict.fromkeys(v for t, b in pairs if t == kind for v in b.coefficients))


def _make_view(block: Block) -> _View:
    facts = block.facts
    accesses, access_rows, strides, stride_rows = [], [], [], []
    reads = [(EdgeType.READ, EdgeType.READ_STRIDE, access) for access in facts.reads]
    writes = [(EdgeType.WRITE, EdgeType.WRITE_STRIDE, access) for access in facts.writes]
    for edge, stride_edge, access in reads + writes:
        elements = math.prod(max(extent, 1) for _, extent in access.region)
        exact = all(start.exact and extent > 0 for start, extent in access.region)
        accesses.append((int(edge), access.buffer.handle, access.buffer))
        access_rows.append((0.0, 0.0, 0.0, 0.0, float(exact), _log(elements)))
        for var, (stride, straight) in _strides(access, block).items():
            strides.append((int(stride_edge), var, access.buffer.handle))
            stride_rows.append(_stride_row(stride, straight))
    instances = math.prod(facts.iter_extents)
    head = (
        facts.iter_types.count(SPATIAL) / 8,
        facts.iter_types.count(REDUCE) / 8,
        len(facts.reads) / 8,
        len(facts.writes) / 8,
        float(facts.has_init),
        float(block.has_predicate),
        float(facts.annotated),
    )
    exact_bindings = float(all(binding.exact for binding in block.bindings))
    shape = (-1, len(EDGE_FEATURES))
    return _View(
        block.realize,
        head,
        (exact_bindings, *_block_operations(facts.node)),
        tuple(accesses),
        np.array(access_rows, np.float32).reshape(shape),
        tuple(strides),
        np.array(stride_rows, np.float32).reshape(shape),
        _moved_by(block, SPATIAL),
        _moved_by(block, REDUCE),
        instances,
    )


def _view(block: Block) -> _View:
    handle = hash(block.realize)
    hit = _views.get(handle)
    if hit is None:
        if len(_views) >= _CACHE_LIMIT:
            _views.clear()
        hit = _views[handle] = _make_view(block)
    return hit


class _Buffers:
    """Buffers in order of first access, written ones marked."""

    def __init__(self) -> None:
        self.number: dict[int, int] = {}
        self.found: list[Buffer] = []
        self.written: set[int] = set()

    def add(self, view: _View) -> None:
        for edge, handle, buffer in view.accesses:
            if handle not in self.number:
                self.number[handle] = len(self.found)
                self.found.append(buffer)
            if edge == EdgeType.WRITE:
                self.written.add(handle)


def _loop_rows(nest: LoopNest, views: list[_View]) -> tuple[list[tuple[float, ...]], list[int]]:
    """Feature rows of all loops, and the product of extents down to each loop."""
    spatial, reduce = set[int](), set[int]()
    for view in views:
        spatial.update(view.spatial)
        reduce.update(view.reduce)
    rows: list[tuple[float, ...]] = []
    trips: list[int] = []
    for loop in nest.loops:
        extent = max(loop.extent, 1)
        total = extent * (trips[loop.parent] if loop.parent >= 0 else 1)
        trips.append(total)
        rows.append(
            (
                _log(extent),
                *_KINDS[loop.kind],
                1.0 if loop.annotated else 0.0,
                len(loop.chain) / 8,
                _log(total),
                _POWER[extent] if extent < 1 << 14 else _log(extent & -extent),
                len(loop.blocks) / 8,
                1.0 if loop.var in spatial else 0.0,
                1.0 if loop.var in reduce else 0.0,
                *_BODIES.get(loop.body, (0.0, 0.0, 0.0)),
            )
        )
    return rows, trips


def _buffer_rows(buffers: _Buffers, allocated: set[int]) -> list[tuple[float, ...]]:
    rows: list[tuple[float, ...]] = []
    for buffer in buffers.found:
        elements = math.prod(max(extent, 1) for extent in buffer.shape)
        inner = buffer.handle in allocated
        rows.append(
            (
                _log(elements),
                _log(max(buffer.nbytes, 0)),
                len(buffer.shape) / 8,
                _log(max(buffer.shape[-1], 0)) if buffer.shape else 0.0,
                buffer.nbytes / max(elements, 1) / 8,
                1.0 if "float" in buffer.dtype else 0.0,
                0.0 if inner else 1.0,
                1.0 if not inner and buffer.handle in buffers.written else 0.0,
                0.0 if buffer.scope == "global" else 1.0,
            )
        )
    return rows


def _structure(nest: LoopNest, first_block: int) -> tuple[list[int], list[int], list[int]]:
    """Types, sources and targets of the nesting and order edges, in pre-order."""
    types: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    last: dict[int, int] = {}

    def child(parent: int, node: int) -> None:
        before = last.get(parent)
        types.append(0)
        sources.append(parent)
        targets.append(node)
        if before is not None:
            types.append(1)
            sources.append(before)
            targets.append(node)
        last[parent] = node

    for block in nest.blocks:
        parent = 0
        for loop in block.chain:
            if nest.loops[loop].blocks[0] == block.index:
                child(parent, loop + 1)
            parent = loop + 1
        child(parent, first_block + block.index)
    return types, sources, targets


class TensorIREncoder:
    """Encodes `TensorIRProgram`s; stateless apart from caches by node."""

    def encode(self, program: Program) -> IRGraph:
        """The program as a graph; raises TypeError for another dialect's program."""
        if not isinstance(program, TensorIRProgram):
            raise TypeError(f"expected a TensorIRProgram, got {type(program).__name__}")
        nest = program.nest
        views = [_view(block) for block in nest.blocks]
        buffers = _Buffers()
        for view in views:
            buffers.add(view)
        counts = (1, len(nest.loops), len(nest.blocks), len(buffers.found))
        nodes = self._nodes(program, views, buffers, counts)
        types, links, edges = self._edges(nest, views, buffers, counts)
        for array in (nodes, types, links, edges):
            array.flags.writeable = False
        return IRGraph(counts, nodes, edges, types, links)

    def _nodes(
        self,
        program: TensorIRProgram,
        views: list[_View],
        buffers: _Buffers,
        counts: tuple[int, int, int, int],
    ) -> NDArray[np.float32]:
        nest = program.nest
        loops, trips = _loop_rows(nest, views)
        blocks = [
            (
                _log(view.instances),
                _log(trips[block.chain[-1]] if block.chain else 1),
                *view.head,
                len(block.chain) / 8,
                *view.tail,
            )
            for block, view in zip(nest.blocks, views, strict=True)
        ]
        allocated = {hash(node) for node in nest.root.alloc_buffers}
        rows = (
            [hardware_features(program.target)],
            loops,
            blocks,
            _buffer_rows(buffers, allocated),
        )
        nodes = np.zeros((sum(counts), _WIDTH), np.float32)
        start = 0
        for kind, (count, part) in enumerate(zip(counts, rows, strict=True)):
            end = start + count
            nodes[start:end, kind] = 1.0
            if count:
                nodes[start:end, COLUMNS[NodeType(kind)]] = part
            start = end
        np.clip(nodes, -BOUND, BOUND, out=nodes)
        return nodes

    def _edges(
        self,
        nest: LoopNest,
        views: list[_View],
        buffers: _Buffers,
        counts: tuple[int, int, int, int],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        first_block = 1 + counts[1]
        first_buffer = first_block + counts[2]
        types, sources, targets = _structure(nest, first_block)
        rows = [np.zeros((len(types), len(EDGE_FEATURES)), np.float32)]
        loop_node = {loop.var: loop.index + 1 for loop in nest.loops}
        number = buffers.number
        for node, view in enumerate(views, first_block):
            for edge, handle, _ in view.accesses:
                types.append(edge)
                buffer = first_buffer + number[handle]
                sources.append(buffer if edge == 2 else node)
                targets.append(node if edge == 2 else buffer)
            rows.append(view.access_rows)
            for edge, var, handle in view.strides:
                types.append(edge)
                sources.append(loop_node.get(var, 0))
                targets.append(first_buffer + number[handle])
            rows.append(view.stride_rows)
        edges = np.concatenate(rows)
        np.clip(edges, -BOUND, BOUND, out=edges)
        return np.array(types, np.int32), np.array((sources, targets), np.int32), edges

    def tree(self, program: Program) -> list[str]:
        """One line for each loop and block, indented by depth."""
        nest = cast(TensorIRProgram, program).nest
        lines: list[str] = []
        shown = 0
        for block in nest.blocks:
            for depth, index in enumerate(block.chain):
                if index >= shown:
                    loop = nest.loops[index]
                    kind = tx.ForKind(loop.kind).name.lower()
                    name = loop.node.loop_var.name
                    mark = ", annotated" if loop.annotated else ""
                    lines.append(
                        f"{'  ' * depth}loop {index}: {name}, extent {loop.extent}, {kind}{mark}"
                    )
                    shown = index + 1
            lines.append("  " * len(block.chain) + _block_line(block))
        return lines


def _block_line(block: Block) -> str:
    facts = block.facts
    reads = ", ".join(dict.fromkeys(access.buffer.name for access in facts.reads))
    writes = ", ".join(dict.fromkeys(access.buffer.name for access in facts.writes))
    reduction = ", reduction" if REDUCE in facts.iter_types else ""
    init = ", with init" if facts.has_init else ""
    return f"block {block.index}: {facts.name}, reads {reads or 'nothing'}, writes {writes}{reduction}{init}"
