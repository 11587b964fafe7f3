"""`TensorIREncoder`: TensorIR programs as graphs and as numbered loop trees.

Hot path: rows are kept as bytes, edges as numbers, made once for each part of the loop nest (see
`PartView`).
"""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from typing import cast

import numpy as np
import tvm.tirx as tx
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.target import Target
from tirgym.harness.tensorir.nest import REDUCE, Block, Buffer, NodeCache
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import EDGE_FEATURES, NODE_FEATURES, EdgeType, IRGraph, NodeType
from tirgym.spaces.hardware import hardware_features
from tirgym.spaces.tensorir_blocks import log_of, node_row
from tirgym.spaces.tensorir_parts import PartView, part_view

__all__ = ["TensorIREncoder"]

_WIDTH, _EDGE_WIDTH = len(NODE_FEATURES), len(EDGE_FEATURES)
_NO_FEATURES = bytes(4 * _EDGE_WIDTH)
_ORDER = array("i", [EdgeType.ORDER]).tobytes()

_BUFFERS = NodeCache()


@lru_cache(maxsize=64)
def _hardware_row(target: Target) -> bytes:
    return node_row(NodeType.HARDWARE, hardware_features(target))


def _buffer_rows(buffer: Buffer) -> tuple[bytes, bytes, bytes]:
    """Rows of a buffer: of an intermediate, of an input, of an output; cached."""
    hit = _BUFFERS.entries.get(buffer.handle)
    if hit is not None:
        return hit  # type: ignore[no-any-return]
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


class TensorIREncoder:
    """Encodes `TensorIRProgram`s; stateless apart from caches by node."""

    def encode(self, program: Program) -> IRGraph:
        """The program as a graph; raises TypeError for another dialect's program."""
        if not isinstance(program, TensorIRProgram):
            raise TypeError(f"expected a TensorIRProgram, got {type(program).__name__}")
        nest = program.nest
        views = [part_view(entry.part) for entry in nest.parts]
        number: dict[int, int] = {}
        buffers: list[Buffer] = []
        for view in views:
            for handle, buffer in zip(view.handles, view.buffers, strict=True):
                if handle not in number:
                    number[handle] = len(buffers)
                    buffers.append(buffer)
        counts = (1, nest.size, len(nest.blocks), len(buffers))
        nodes = self._nodes(program, views, buffers)
        types, links, edges = self._edges(program, views, number, counts)
        return IRGraph(counts, nodes, edges, types, links)

    def _nodes(
        self, program: TensorIRProgram, views: list[PartView], buffers: list[Buffer]
    ) -> NDArray[np.float32]:
        rows = [_hardware_row(program.target)]
        rows += [view.loop_rows for view in views]
        rows += [view.block_rows for view in views]
        inner = program.facts.intermediates
        written: set[int] = set()
        for view in views:
            written.update(view.written)
        for buffer in buffers:
            handle = buffer.handle
            rows.append(_buffer_rows(buffer)[0 if handle in inner else 1 + (handle in written)])
        return np.frombuffer(b"".join(rows), np.float32).reshape(-1, _WIDTH)

    def _edges(
        self,
        program: TensorIRProgram,
        views: list[PartView],
        number: dict[int, int],
        counts: tuple[int, int, int, int],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        """Types, links and rows: nesting and order of all parts first, then their accesses."""
        first_block = 1 + counts[1]
        first_buffer = first_block + counts[2]
        sources: list[int] = []
        targets: list[int] = []
        more_sources: list[int] = []
        more_targets: list[int] = []
        types: list[bytes] = []
        rows: list[bytes] = []
        before = 0
        for view, (part, _, _, _, loop, block) in zip(views, program.nest.parts, strict=True):
            node = [0, *range(1 + loop, 1 + loop + view.loops)]
            node += range(first_block + block, first_block + block + len(part.blocks))
            if before and view.tops[0]:
                types.append(_ORDER)
                sources.append(before)
                targets.append(node[view.tops[0]])
                rows.append(_NO_FEATURES)
            before = node[view.tops[1]] or before
            kinds, ends, heads = view.structure
            types.append(kinds)
            rows.append(view.structure_rows)
            sources += [node[end] for end in ends]
            targets += [node[head] for head in heads]
            node += [first_buffer + number[handle] for handle in view.handles]
            _, ends, heads = view.accesses
            more_sources += [node[end] for end in ends]
            more_targets += [node[head] for head in heads]
        types += [view.accesses.types for view in views]
        rows += [view.access_rows for view in views]
        links = array("i", sources + more_sources + targets + more_targets)
        edges = np.frombuffer(b"".join(rows), np.float32).reshape(-1, _EDGE_WIDTH)
        return (
            np.frombuffer(b"".join(types), np.int32),
            np.frombuffer(links.tobytes(), np.int32).reshape(2, -1),
            edges,
        )

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
