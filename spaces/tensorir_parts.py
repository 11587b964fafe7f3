"""`PartView`: the part of the graph that one statement of a function's root decides alone.

TVM shares these statements between schedule copies, so a step makes one or two of these and puts the
others together from bytes and numbers. Nodes have numbers of the part's own: 0 is the hardware, then
come its loops, its blocks, and the buffers that they access.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from tirgym.harness.tensorir.nest import Buffer, NestPart
from tirgym.spaces.graph import EDGE_FEATURES, EdgeType, NodeType
from tirgym.spaces.tensorir_blocks import BlockView, block_row, block_view, log_of, node_row

__all__ = ["PartView", "part_view"]

_KINDS = [tuple(float(kind == i) for i in range(5)) for kind in range(5)]
_BODIES = {"loop": (1.0, 0.0, 0.0), "block": (0.0, 1.0, 0.0), "sequence": (0.0, 0.0, 1.0)}
_OTHER_BODY = (0.0, 0.0, 0.0)
_NO_FEATURES = bytes(4 * len(EDGE_FEATURES))
_NESTING, _ORDER = int(EdgeType.NESTING), int(EdgeType.ORDER)


class Edges(NamedTuple):
    """Edges between the nodes of a part."""

    types: bytes
    """int32"""
    sources: tuple[int, ...]
    targets: tuple[int, ...]


class PartView(NamedTuple):
    """Rows and edges of one part."""

    loops: int
    loop_rows: bytes
    block_rows: bytes
    buffers: tuple[Buffer, ...]
    """accessed, each once, in order"""
    handles: tuple[int, ...]
    """of `buffers`"""
    written: tuple[int, ...]
    """handles of those that are written"""
    tops: tuple[int, int]
    """the first and the last child of the hardware node"""
    structure: Edges
    """nesting and order edges, in pre-order"""
    accesses: Edges
    """reads, writes and strides, block by block"""
    structure_rows: bytes
    access_rows: bytes


def part_view(part: NestPart) -> PartView:
    """The view of a part; kept with it."""
    if part.shown is None:
        part.shown = _make(part)
    return part.shown  # type: ignore[no-any-return]


def _make(part: NestPart) -> PartView:
    views = [block_view(place) for place in part.blocks]
    loop_rows, trips = _loop_rows(part, views)
    block_rows = [
        block_row(view, trips[chain[-1]] if chain else 1, len(chain))
        for view, chain in zip(views, part.shape.block_chains, strict=True)
    ]
    buffers: dict[int, Buffer] = {}
    written: dict[int, None] = {}
    for view in views:
        shared = view.shared
        buffers.update(zip(shared.handles, shared.buffers, strict=True))
        written.update(dict.fromkeys(shared.handles[shared.reads :]))
    if part.shape.shown is None:
        part.shape.shown = _structure(part.shape.block_chains, len(part.variables))
    structure, tops = part.shape.shown
    return PartView(
        len(part.variables),
        b"".join(loop_rows),
        b"".join(block_rows),
        tuple(buffers.values()),
        tuple(buffers),
        tuple(written),
        tops,
        structure,
        _accesses(part, views, list(buffers)),
        _NO_FEATURES * len(structure.sources),
        b"".join([view.edge_rows for view in views]),
    )


def _accesses(part: NestPart, views: list[BlockView], handles: list[int]) -> Edges:
    loop_node = {variable: 1 + i for i, variable in enumerate(part.variables)}
    first_block = 1 + len(part.variables)
    first_buffer = first_block + len(views)
    buffer_node = {handle: first_buffer + i for i, handle in enumerate(handles)}
    types: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    for node, view in enumerate(views, first_block):
        at = [buffer_node[handle] for handle in view.shared.handles]
        reads = view.shared.reads
        types += view.edge_types
        sources += at[:reads]
        sources += [node] * (len(at) - reads)
        sources += [loop_node.get(variable, 0) for variable in view.stride_vars]
        targets += [node] * reads
        targets += at[reads:]
        targets += [at[access] for access in view.stride_accesses]
    return Edges(array("i", types).tobytes(), tuple(sources), tuple(targets))


def _structure(chains: tuple[tuple[int, ...], ...], loops: int) -> tuple[Edges, tuple[int, int]]:
    """Nesting and order edges, and the first and the last child of the hardware node."""
    types: list[int] = []
    sources: list[int] = []
    targets: list[int] = []
    last: dict[int, int] = {}
    first = shown = 0
    for node, chain in enumerate(chains, 1 + loops):
        new = len(chain)
        while new and chain[new - 1] >= shown:
            new -= 1
        parent = chain[new - 1] + 1 if new else 0
        path = [loop + 1 for loop in chain[new:]]
        if path:
            shown = path[-1]
        path.append(node)
        first = first or path[0]
        before = last.get(parent)
        if before is not None:
            types.append(_ORDER)
            sources.append(before)
            targets.append(path[0])
        last[parent] = path[0]
        types += [_NESTING] * len(path)
        sources.append(parent)
        sources += path[:-1]
        targets += path
        for inner, below in pairwise(path):
            last[inner] = below
    edges = Edges(array("i", types).tobytes(), tuple(sources), tuple(targets))
    return edges, (first, last.get(0, 0))


def _loop_rows(part: NestPart, views: list[BlockView]) -> tuple[list[bytes], list[int]]:
    """Feature rows of all loops, and the product of extents down to each loop."""
    spatial, reduce = set[int](), set[int]()
    for view in views:
        spatial.update(view.spatial)
        reduce.update(view.reduce)
    rows: list[bytes] = []
    trips: list[int] = []
    depths: list[int] = []
    for i, parent in enumerate(part.shape.parents):
        extent, variable = max(part.extents[i], 1), part.variables[i]
        depths.append(1 if parent < 0 else depths[parent] + 1)
        trips.append(extent if parent < 0 else extent * trips[parent])
        rows.append(
            _loop_row(
                extent,
                trips[i],
                part.shape.kinds[i],
                part.shape.annotated[i],
                depths[i],
                part.shape.stops[i] - part.shape.firsts[i],
                variable in spatial,
                variable in reduce,
                part.shape.bodies[i],
            )
        )
    return rows, trips


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
