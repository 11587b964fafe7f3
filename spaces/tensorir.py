"""`TensorIREncoder`: TensorIR programs as graphs and as numbered loop trees.

Hot path: everything that depends on a block and its bindings alone is computed once for each
`SBlockRealize` node, which TVM shares between schedule copies.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import tvm.tirx as tx
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.tensorir.nest import REDUCE, Block, Buffer, LoopNest, NodeCache
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import (
    BOUND,
    COLUMNS,
    EDGE_FEATURES,
    NODE_FEATURES,
    IRGraph,
    NodeType,
)
from tirgym.spaces.hardware import hardware_features
from tirgym.spaces.tensorir_blocks import LOG_TABLE, BlockView, block_view, log_of

__all__ = ["TensorIREncoder"]

_POWER = [0.0, *(log_of(x & -x) for x in range(1, LOG_TABLE))]
_KINDS = [tuple(float(kind == i) for i in range(5)) for kind in range(5)]
_BODIES = {"loop": (1.0, 0.0, 0.0), "block": (0.0, 1.0, 0.0), "sequence": (0.0, 0.0, 1.0)}
_OTHER_BODY = (0.0, 0.0, 0.0)
_WIDTH, _EDGE_WIDTH = len(NODE_FEATURES), len(EDGE_FEATURES)
_COLUMNS = [COLUMNS[kind] for kind in NodeType]
_SURELY_BOUNDED = 60
"""Up to this many loops and blocks every feature is within BOUND by construction."""


_SHAPES = NodeCache(1 << 10)


def _loop_rows(nest: LoopNest, views: list[BlockView]) -> tuple[list[float], list[int]]:
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
            log_of(extent),
            *_KINDS[loop.kind],
            1.0 if loop.annotated else 0.0,
            len(loop.chain) / 8,
            log_of(total),
            _POWER[extent] if extent < LOG_TABLE else log_of(extent & -extent),
            len(loop.blocks) / 8,
            1.0 if var in spatial else 0.0,
            1.0 if var in reduce else 0.0,
            *_BODIES.get(loop.body, _OTHER_BODY),
        )
    return flat, trips


def _buffer_shape(buffer: Buffer) -> tuple[float, ...]:
    """Buffer features that depend on the buffer alone; cached."""
    hit = _SHAPES.entries.get(buffer.handle)
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    elements = math.prod(max(extent, 1) for extent in buffer.shape)
    row = (
        log_of(elements),
        log_of(max(buffer.nbytes, 0)),
        len(buffer.shape) / 8,
        log_of(max(buffer.shape[-1], 0)) if buffer.shape else 0.0,
        buffer.nbytes / max(elements, 1) / 8,
        1.0 if "float" in buffer.dtype else 0.0,
        0.0 if buffer.scope == "global" else 1.0,
    )
    return _SHAPES.put(buffer.node, row)  # type: ignore[no-any-return]


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
        views = [block_view(block) for block in nest.blocks]
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
        views: list[BlockView],
        buffers: list[Buffer],
        counts: tuple[int, int, int, int],
    ) -> NDArray[np.float32]:
        nest = program.nest
        loops, trips = _loop_rows(nest, views)
        blocks: list[float] = []
        for block, view in zip(nest.blocks, views, strict=True):
            chain = block.chain
            blocks += (view.shared.log_instances, log_of(trips[chain[-1]]) if chain else log_of(1))
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
        views: list[BlockView],
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
