"""`TensorIREncoder`: TensorIR programs as graphs and as numbered loop trees.

Hot path: rows are kept as bytes. Those of blocks and strides are made once for each block with its
bindings, which TVM shares between schedule copies; those of loops once for each set of values.
"""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from itertools import pairwise, repeat
from typing import cast

import numpy as np
import tvm.tirx as tx
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import REDUCE, Block, Buffer, LoopNest, NodeCache
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import EDGE_FEATURES, NODE_FEATURES, IRGraph, NodeType
from tirgym.spaces.hardware import hardware_features
from tirgym.spaces.tensorir_blocks import BlockView, block_row, block_view, log_of, node_row

__all__ = ["TensorIREncoder"]

_KINDS = [tuple(float(kind == i) for i in range(5)) for kind in range(5)]
_BODIES = {"loop": (1.0, 0.0, 0.0), "block": (0.0, 1.0, 0.0), "sequence": (0.0, 0.0, 1.0)}
_OTHER_BODY = (0.0, 0.0, 0.0)
_WIDTH, _EDGE_WIDTH = len(NODE_FEATURES), len(EDGE_FEATURES)
_NO_FEATURES = bytes(4 * _EDGE_WIDTH)

_BUFFERS = NodeCache(1 << 10)


@lru_cache(maxsize=64)
def _hardware_row(target: Target) -> bytes:
    return node_row(NodeType.HARDWARE, hardware_features(target))


@lru_cache(maxsize=1 << 14)
def _loop_row(
    extent: int,
    trips: int,
    kind: int,
    annotated: bool,
    depth: int,
    blocks: int,
    spatial: bool,
    reduce: bool,
    body: str,
) -> bytes:
    features = (
        log_of(extent),
        *_KINDS[kind],
        1.0 if annotated else 0.0,
        depth / 8,
        log_of(trips),
        log_of(extent & -extent),
        blocks / 8,
        1.0 if spatial else 0.0,
        1.0 if reduce else 0.0,
        *_BODIES.get(body, _OTHER_BODY),
    )
    return node_row(NodeType.LOOP, features)


def _loop_rows(nest: LoopNest, views: list[BlockView]) -> tuple[list[bytes], list[int]]:
    """Feature rows of all loops, and the product of extents down to each loop."""
    spatial, reduce = set[int](), set[int]()
    for view in views:
        spatial.update(view.spatial)
        reduce.update(view.reduce)
    rows: list[bytes] = []
    trips: list[int] = []
    for loop in nest.loops:
        extent, parent, var = max(loop.extent, 1), loop.parent, loop.var
        total = extent if parent < 0 else extent * trips[parent]
        trips.append(total)
        rows.append(
            _loop_row(
                extent,
                total,
                loop.kind,
                loop.annotated,
                len(loop.chain),
                len(loop.blocks),
                var in spatial,
                var in reduce,
                loop.body,
            )
        )
    return rows, trips


def _buffer_rows(buffer: Buffer) -> tuple[bytes, bytes, bytes]:
    """Rows of a buffer: of an intermediate, of an input, of an output; cached."""
    hit = _BUFFERS.entries.get(buffer.handle)
    if hit is not None:
        return hit[1]  # type: ignore[no-any-return]
    elements = math.prod(max(extent, 1) for extent in buffer.shape)
    features = (
        log_of(elements),
        log_of(max(buffer.nbytes, 0)),
        len(buffer.shape) / 8,
        log_of(max(buffer.shape[-1], 0)) if buffer.shape else 0.0,
        buffer.nbytes / max(elements, 1) / 8,
        1.0 if "float" in buffer.dtype else 0.0,
        0.0 if buffer.scope == "global" else 1.0,
    )
    made = tuple(
        node_row(NodeType.BUFFER, (*features, *use)) for use in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0))
    )
    return _BUFFERS.put(buffer.node, made)  # type: ignore[no-any-return]


def _structure(nest: LoopNest, first_block: int) -> tuple[list[int], list[int], list[int]]:
    """Types, sources and targets of the nesting and order edges, in pre-order."""
    types: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    last: dict[int, int] = {}
    shown = 0
    for node, block in enumerate(nest.blocks, first_block):
        chain = block.chain
        new = len(chain)
        while new and chain[new - 1] >= shown:
            new -= 1
        parent = chain[new - 1] + 1 if new else 0
        path = [loop + 1 for loop in chain[new:]]
        if path:
            shown = path[-1]
        path.append(node)
        before = last.get(parent)
        if before is not None:
            types.append(1)
            sources.append(before)
            targets.append(path[0])
        last[parent] = path[0]
        types += repeat(0, len(path))
        sources.append(parent)
        sources += path[:-1]
        targets += path
        for inner, below in pairwise(path):
            last[inner] = below
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
        nodes = self._nodes(program, views, buffers)
        types, links, edges = self._edges(nest, views, number, counts)
        return IRGraph(counts, nodes, edges, types, links)

    def _nodes(
        self, program: TensorIRProgram, views: list[BlockView], buffers: list[Buffer]
    ) -> NDArray[np.float32]:
        nest = program.nest
        rows, trips = _loop_rows(nest, views)
        rows.insert(0, _hardware_row(program.target))
        for block, view in zip(nest.blocks, views, strict=True):
            chain = block.chain
            rows.append(block_row(view, trips[chain[-1]] if chain else 1, len(chain)))
        inner = program.facts.intermediates
        written: set[int] = set()
        for view in views:
            written.update(view.shared.handles[view.shared.reads :])
        for buffer in buffers:
            handle = buffer.handle
            rows.append(_buffer_rows(buffer)[0 if handle in inner else 1 + (handle in written)])
        return np.frombuffer(b"".join(rows), np.float32).reshape(-1, _WIDTH)

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
        rows = [_NO_FEATURES * len(types)]
        loop_node = {loop.var: loop.index + 1 for loop in nest.loops}
        for node, view in enumerate(views, first_block):
            at = [first_buffer + number[handle] for handle in view.shared.handles]
            reads = view.shared.reads
            types += view.edge_types
            sources += at[:reads]
            sources += repeat(node, len(at) - reads)
            sources += map(loop_node.get, view.stride_vars, repeat(0))
            targets += repeat(node, reads)
            targets += at[reads:]
            targets += map(at.__getitem__, view.stride_accesses)
            rows.append(view.edge_rows)
        count = len(types)
        numbers = struct.pack(f"{3 * count}i", *sources, *targets, *types)
        integers = np.frombuffer(numbers, np.int32)
        links = integers[: 2 * count].reshape(2, -1)
        edges = np.frombuffer(b"".join(rows), np.float32).reshape(-1, _EDGE_WIDTH)
        return integers[2 * count :], links, edges

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
