"""`TensorIREncoder`: TensorIR programs as graphs and as numbered loop trees.

Hot path: everything that depends on a block and its bindings alone is computed once for each
`SBlockRealize` node, which TVM shares between schedule copies.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
import tvm.tirx as tx
from numpy.typing import NDArray
from tvm.ir.expr import Call, Expr, TensorLoad

from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import (
    REDUCE,
    SPATIAL,
    Access,
    Block,
    BlockFacts,
    Buffer,
    Linear,
    LoopNest,
)
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

_TABLE = 1 << 14
_LOG = [math.log2(1 + x) / 16 for x in range(_TABLE)]
_POWER = [0.0, *(math.log2(1 + (x & -x)) / 16 for x in range(1, _TABLE))]
_KINDS = [tuple(float(kind == i) for i in range(5)) for kind in range(5)]
_BODIES = {"loop": (1.0, 0.0, 0.0), "block": (0.0, 1.0, 0.0), "sequence": (0.0, 0.0, 1.0)}
_OTHER_BODY = (0.0, 0.0, 0.0)
_WIDTH, _EDGE_WIDTH = len(NODE_FEATURES), len(EDGE_FEATURES)
_COLUMNS = [COLUMNS[kind] for kind in NodeType]
_READ_STRIDE, _WRITE_STRIDE = int(EdgeType.READ_STRIDE), int(EdgeType.WRITE_STRIDE)
_NO_STRIDE = (0.0, True)
_SURELY_BOUNDED = 60
"""Up to this many loops and blocks every feature is within BOUND by construction."""
_CACHE_LIMIT = 1 << 10


def _log(x: float) -> float:
    if 0 <= x < _TABLE:
        return _LOG[int(x)]
    return min(math.log2(1 + max(x, 0)) / 16, BOUND)


class _Shared(NamedTuple):
    """What depends on a block alone."""

    node: Any
    """held, so that its handle stays unique"""
    log_instances: float
    """of the product of the iterator extents"""
    head: tuple[float, ...]
    """block features before `has_predicate`"""
    annotated: float
    operations: tuple[float, ...]
    """block features after `exact_bindings`"""
    reads: int
    """number of read regions"""
    accesses: tuple[Access, ...]
    """each read, then each write"""
    buffers: tuple[Buffer, ...]
    handles: tuple[int, ...]
    """of `buffers`"""
    straight: tuple[bool, ...]
    """whether the starts of each access are linear"""
    edge_types: tuple[int, ...]
    edge_rows: tuple[tuple[float, ...], ...]


class _View(NamedTuple):
    """What depends on a block and its bindings alone."""

    realize: Any
    """held, so that its handle stays unique"""
    shared: _Shared
    head: tuple[float, ...]
    """block features before `depth`"""
    tail: tuple[float, ...]
    """block features after `depth`"""
    stride_vars: tuple[int, ...]
    """loop variable of each stride edge"""
    stride_accesses: tuple[int, ...]
    """access of each stride edge"""
    edge_types: tuple[int, ...]
    """of reads, writes and strides"""
    edge_rows: NDArray[np.float32]
    """(len(edge_types), EDGE_FEATURES)"""
    spatial: tuple[int, ...]
    """handles of loop variables that move a spatial iterator"""
    reduce: tuple[int, ...]
    """handles of loop variables that move a reduction iterator"""


_views: dict[int, _View] = {}
_blocks: dict[int, _Shared] = {}
_shapes: dict[int, tuple[Buffer, tuple[float, ...]]] = {}

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
_BINARY = frozenset(_PLACE) - {tx.Not, tx.Select, Call, TensorLoad}
_LEAVES = frozenset((tx.Var, tx.IntImm, tx.FloatImm))
_CHILDREN = ("a", "value", "condition", "true_value", "false_value", "body")
_NODES = (Expr, tx.Stmt)


def _count(node: Any, counts: list[int]) -> None:
    """Add the operations under `node`, index expressions apart, to `counts`."""
    kind = type(node)
    if kind in _LEAVES:
        return
    place = _PLACE.get(kind)
    if place is not None:
        counts[place] += 1
    if kind in _BINARY:
        _count(node.a, counts)
        _count(node.b, counts)
    elif kind is tx.BufferStore:
        _count(node.value, counts)
    elif kind is Call or kind is tx.SeqStmt:
        for child in node.args if kind is Call else node.seq:
            if isinstance(child, _NODES):
                _count(child, counts)
    elif kind is not TensorLoad:
        for name in _CHILDREN:
            child = getattr(node, name, None)
            if isinstance(child, _NODES):
                _count(child, counts)


@lru_cache(maxsize=4096)
def _stride_row(stride: float, exact: bool) -> tuple[float, ...]:
    size = abs(stride)
    return (_log(size), float(stride < 0), float(size == 1), float(size == 0), float(exact), 0.0)


def _moved_by(facts: BlockFacts, bindings: tuple[Linear, ...], kind: int) -> tuple[int, ...]:
    """Loop variables that move an iterator of `kind`."""
    pairs = zip(facts.iter_types, bindings, strict=True)
    return tuple([var for t, binding in pairs if t == kind for var in binding.coefficients])


def _make_shared(facts: BlockFacts) -> _Shared:
    counts = [0] * 6
    _count(facts.node.body, counts)
    accesses = (*facts.reads, *facts.writes)
    reads = len(facts.reads)
    rows: list[tuple[float, ...]] = []
    straight: list[bool] = []
    for access in accesses:
        elements, fixed, exact = 1, True, True
        for start, extent in access.region:
            elements *= max(extent, 1)
            fixed, exact = fixed and extent > 0, exact and start.exact
        rows.append((0.0, 0.0, 0.0, 0.0, float(exact and fixed), _log(elements)))
        straight.append(exact)
    return _Shared(
        node=facts.node,
        log_instances=_log(math.prod(facts.iter_extents)),
        head=(
            facts.iter_types.count(SPATIAL) / 8,
            facts.iter_types.count(REDUCE) / 8,
            reads / 8,
            len(facts.writes) / 8,
            float(facts.has_init),
        ),
        annotated=float(facts.annotated),
        operations=tuple(min(count / 8, BOUND) for count in counts),
        reads=reads,
        accesses=accesses,
        buffers=tuple(access.buffer for access in accesses),
        handles=tuple(access.buffer.handle for access in accesses),
        straight=tuple(straight),
        edge_types=(int(EdgeType.READ),) * reads + (int(EdgeType.WRITE),) * len(facts.writes),
        edge_rows=tuple(rows),
    )


def _shared(facts: BlockFacts) -> _Shared:
    """What depends on a block alone; cached by node."""
    handle = hash(facts.node)
    hit = _blocks.get(handle)
    if hit is None:
        if len(_blocks) >= _CACHE_LIMIT:
            _blocks.clear()
        hit = _blocks[handle] = _make_shared(facts)
    return hit


def _strides(access: Access, straight: bool, block: Block) -> dict[int, tuple[float, bool]]:
    """Elements that one iteration of each loop variable moves `access`, and whether exactly."""
    found: dict[int, tuple[float, bool]] = {}
    strides = access.strides
    for iterator, binding in zip(block.facts.iter_handles, block.bindings, strict=True):
        step = strides.get(iterator)
        if step is None:
            continue
        for var, coefficient in binding.coefficients.items():
            before, exact = found.get(var, _NO_STRIDE)
            found[var] = before + step * coefficient, exact and straight and binding.exact
    return found


def _make_view(block: Block) -> _View:
    facts, bindings = block.facts, block.bindings
    shared = _shared(facts)
    types, rows = list(shared.edge_types), list(shared.edge_rows)
    variables: list[int] = []
    moved: list[int] = []
    for number, access in enumerate(shared.accesses):
        kind = _READ_STRIDE if number < shared.reads else _WRITE_STRIDE
        found = _strides(access, shared.straight[number], block)
        for var, (stride, exact) in found.items():
            types.append(kind)
            variables.append(var)
            moved.append(number)
            rows.append(_stride_row(stride, exact))
    exact_bindings = float(all(binding.exact for binding in bindings))
    return _View(
        realize=block.realize,
        shared=shared,
        head=(*shared.head, 1.0 if block.has_predicate else 0.0, shared.annotated),
        tail=(exact_bindings, *shared.operations),
        stride_vars=tuple(variables),
        stride_accesses=tuple(moved),
        edge_types=tuple(types),
        edge_rows=np.array(rows, np.float32).reshape(-1, _EDGE_WIDTH),
        spatial=_moved_by(facts, bindings, SPATIAL),
        reduce=_moved_by(facts, bindings, REDUCE),
    )


def _view(block: Block) -> _View:
    handle = hash(block.realize)
    hit = _views.get(handle)
    if hit is None:
        if len(_views) >= _CACHE_LIMIT:
            _views.clear()
        hit = _views[handle] = _make_view(block)
    return hit


def _loop_rows(nest: LoopNest, views: list[_View]) -> tuple[list[float], list[int]]:
    """Feature rows of all loops, flat, and the product of extents down to each loop."""
    spatial, reduce = set[int](), set[int]()
    for view in views:
        spatial.update(view.spatial)
        reduce.update(view.reduce)
    flat: list[float] = []
    trips: list[int] = []
    for loop in nest.loops:
        extent, parent, var = max(loop.extent, 1), loop.parent, loop.var
        total = extent if parent < 0 else extent * trips[parent]
        trips.append(total)
        flat += (
            _log(extent),
            *_KINDS[loop.kind],
            1.0 if loop.annotated else 0.0,
            len(loop.chain) / 8,
            _log(total),
            _POWER[extent] if extent < _TABLE else _log(extent & -extent),
            len(loop.blocks) / 8,
            1.0 if var in spatial else 0.0,
            1.0 if var in reduce else 0.0,
            *_BODIES.get(loop.body, _OTHER_BODY),
        )
    return flat, trips


def _buffer_shape(buffer: Buffer) -> tuple[float, ...]:
    """Buffer features that depend on the buffer alone; cached."""
    hit = _shapes.get(buffer.handle)
    if hit is None:
        elements = math.prod(max(extent, 1) for extent in buffer.shape)
        row = (
            _log(elements),
            _log(max(buffer.nbytes, 0)),
            len(buffer.shape) / 8,
            _log(max(buffer.shape[-1], 0)) if buffer.shape else 0.0,
            buffer.nbytes / max(elements, 1) / 8,
            1.0 if "float" in buffer.dtype else 0.0,
            0.0 if buffer.scope == "global" else 1.0,
        )
        if len(_shapes) >= _CACHE_LIMIT:
            _shapes.clear()
        hit = _shapes[buffer.handle] = (buffer, row)
    return hit[1]


def _structure(nest: LoopNest, first_block: int) -> tuple[list[int], list[int], list[int]]:
    """Types, sources and targets of the nesting and order edges, in pre-order."""
    types: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    last: dict[int, int] = {}
    for block in nest.blocks:
        index = block.index
        chain = [loop + 1 for loop in block.chain if nest.loops[loop].blocks[0] == index]
        parent = block.chain[-len(chain) - 1] + 1 if len(chain) < len(block.chain) else 0
        for node in (*chain, first_block + index):
            before = last.get(parent)
            if before is not None:
                types.append(1)
                sources.append(before)
                targets.append(node)
            types.append(0)
            sources.append(parent)
            targets.append(node)
            last[parent] = parent = node
    return types, sources, targets


class TensorIREncoder:
    """Encodes `TensorIRProgram`s; stateless apart from caches by node."""

    def encode(self, program: Program) -> IRGraph:
        """The program as a graph; raises TypeError for another dialect's program."""
        if not isinstance(program, TensorIRProgram):
            raise TypeError(f"expected a TensorIRProgram, got {type(program).__name__}")
        nest = program.nest
        views = [_view(block) for block in nest.blocks]
        number: dict[int, int] = {}
        buffers: list[Buffer] = []
        for view in views:
            shared = view.shared
            for handle, buffer in zip(shared.handles, shared.buffers, strict=True):
                if handle not in number:
                    number[handle] = len(buffers)
                    buffers.append(buffer)
        counts = (1, len(nest.loops), len(nest.blocks), len(buffers))
        nodes = self._nodes(program, views, buffers, counts)
        types, links, edges = self._edges(nest, views, number, counts)
        for array in (nodes, types, links, edges):
            array.flags.writeable = False
        return IRGraph(counts, nodes, edges, types, links)

    def _nodes(
        self,
        program: TensorIRProgram,
        views: list[_View],
        buffers: list[Buffer],
        counts: tuple[int, int, int, int],
    ) -> NDArray[np.float32]:
        nest = program.nest
        loops, trips = _loop_rows(nest, views)
        blocks: list[float] = []
        for block, view in zip(nest.blocks, views, strict=True):
            chain = block.chain
            blocks += (view.shared.log_instances, _log(trips[chain[-1]]) if chain else _LOG[1])
            blocks += view.head
            blocks.append(len(chain) / 8)
            blocks += view.tail
        inner = program.facts.intermediates
        written = {handle for view in views for handle in view.shared.handles[view.shared.reads :]}
        shapes: list[float] = []
        for buffer in buffers:
            parameter = buffer.handle not in inner
            shapes += _buffer_shape(buffer)
            shapes += (1.0, 1.0 if buffer.handle in written else 0.0) if parameter else (0.0, 0.0)
        nodes = np.zeros((sum(counts), _WIDTH), np.float32)
        start = 0
        rows = (hardware_features(program.target), loops, blocks, shapes)
        for kind, (count, flat) in enumerate(zip(counts, rows, strict=True)):
            end = start + count
            if count:
                nodes[start:end, kind] = 1.0
                nodes[start:end, _COLUMNS[kind]] = np.array(flat, np.float32).reshape(count, -1)
            start = end
        if counts[1] > _SURELY_BOUNDED or counts[2] > _SURELY_BOUNDED:
            np.clip(nodes, -BOUND, BOUND, out=nodes)
        return nodes

    def _edges(
        self,
        nest: LoopNest,
        views: list[_View],
        number: dict[int, int],
        counts: tuple[int, int, int, int],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        first_block = 1 + counts[1]
        first_buffer = first_block + counts[2]
        types, sources, targets = _structure(nest, first_block)
        rows = [np.zeros((len(types), _EDGE_WIDTH), np.float32)]
        loop_node = {loop.var: loop.index + 1 for loop in nest.loops}
        for node, view in enumerate(views, first_block):
            at = [first_buffer + number[handle] for handle in view.shared.handles]
            reads = view.shared.reads
            writes = len(at) - reads
            types += view.edge_types
            sources += at[:reads]
            sources += [node] * writes
            sources += [loop_node.get(var, 0) for var in view.stride_vars]
            targets += [node] * reads
            targets += at[reads:]
            targets += [at[access] for access in view.stride_accesses]
            rows.append(view.edge_rows)
        links = np.array(sources + targets, np.int32).reshape(2, -1)
        return np.array(types, np.int32), links, np.concatenate(rows)

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
