"""`LoopNest`: loops, blocks and accesses of one TensorIR function, read in one cheap walk.

The function is read part by part: a `NestPart` is one statement of its root with all below it, which
TVM shares between schedule copies as long as nothing in it changes. A step changes one or two of
them, so most of what a step asks for was found out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import tvm.tirx as tx
from tvm.s_tir import SBlockRealize
from tvm.tirx import For, IntImm, SeqStmt

from tirgym.harness.tensorir.block_facts import (
    Access,
    BlockFacts,
    Buffer,
    Placement,
    placement,
)
from tirgym.harness.tensorir.linear import Linear, linear
from tirgym.harness.tensorir.node_cache import NodeCache, items, map_size

__all__ = [
    "Access",
    "Block",
    "BlockFacts",
    "Buffer",
    "Linear",
    "Loop",
    "LoopNest",
    "NestPart",
    "NodeCache",
    "PlacedPart",
    "Placement",
    "Shape",
    "items",
    "linear",
    "read_nest",
]

STAGE = "software_pipeline_stage"
"""Annotation of loops with a software pipeline."""
SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING = range(5)
SPATIAL, REDUCE = 0, 2

Chain = tuple[int, ...]
Positions = tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)
class Shape:
    """How the loops and blocks of a part stand in each other; loops and blocks count from 0.

    One record for all parts of the same shape, of any program. What other modules find out about it
    is kept in slots of the record.
    """

    kinds: tuple[int, ...]
    """of each loop"""
    annotated: tuple[bool, ...]
    pipelined: tuple[bool, ...]
    """with a software pipeline"""
    parents: tuple[int, ...]
    """-1 for the outermost loop"""
    bodies: tuple[str, ...]
    """"loop", "block", "sequence" or "other" """
    firsts: tuple[int, ...]
    """first block below each loop"""
    stops: tuple[int, ...]
    """the block after the last one below each loop"""
    block_chains: tuple[Chain, ...]
    """loops around each block, outermost first"""
    positions: tuple[Positions, ...]
    """(loop or -1, position) for each sequence on the way to each block"""
    sets: Any = field(default=None, init=False)
    """filled by `loop_facts`"""
    shown: Any = field(default=None, init=False)
    """filled by the encoder of graphs"""


@lru_cache(maxsize=1 << 12)
def _shape(*fields: Any) -> Shape:
    return Shape(*fields)


class NestPart:
    """One statement of a function's root and all below it; loops and blocks count from 0.

    A program shares this record with the one that it was made from where the content is the same; it
    has slots for what other modules find out.
    """

    __slots__ = (
        "blocks",
        "buffers",
        "content",
        "cost",
        "extents",
        "facts",
        "shape",
        "shown",
        "unroll_limits",
        "variables",
    )

    def __init__(
        self,
        shape: Shape,
        variables: tuple[int, ...],
        extents: tuple[int, ...],
        unroll_limits: tuple[int, ...],
        blocks: tuple[Placement, ...],
        content: tuple[Any, ...],
    ) -> None:
        self.content = content
        """handles and identities of all that the record depends on"""
        self.shape = shape
        self.variables = variables
        """handle of the variable of each loop"""
        self.extents = extents
        """-1 if not constant"""
        self.unroll_limits = unroll_limits
        """that a pragma on the loop sets, 0 without one"""
        self.blocks = blocks
        """of the first such statement"""
        self.buffers: tuple[int, ...] | None = None
        """filled by `static_private`"""
        self.facts: Any = None
        """filled by `loop_facts`"""
        self.cost: Any = None
        """filled by the static cost model"""
        self.shown: Any = None
        """filled by the encoder of graphs"""


class PlacedPart(NamedTuple):
    """A part of one function."""

    part: NestPart
    node: Any
    """the statement"""
    handle: int
    """of it"""
    blocks: tuple[Placement, ...]
    loop: int
    """number of its first loop"""
    block: int
    """number of its first block"""


_Read = tuple[NestPart, Any, int, tuple[Placement, ...]]
"""The first fields of a `PlacedPart`."""


def _read_part(node: Any, kind: type, before: LoopNest | None) -> _Read:
    """One statement of the root, taken over from `before` where it is there."""
    handle = hash(node)
    for entry in before.parts if before is not None else ():
        if entry.handle == handle:
            return entry[:4]
    loops: list[list[Any]] = []
    realizes: list[Any] = []
    chains: list[Chain] = []
    positions: list[Positions] = []
    _visit(node, kind, (), (), loops, realizes, chains, positions)
    known = before.placed if before is not None else ()
    blocks = tuple([placement(realize, known) for realize in realizes])
    columns = [tuple(column) for column in zip(*loops, strict=True)] or [()] * 10
    variables, extents, limits, *fields = columns
    shape = _shape(*fields, tuple(chains), tuple(positions))
    content = (id(shape), variables, extents, limits, *[id(block.notes) for block in blocks])
    for entry in before.parts if before is not None else ():
        if entry.part.content == content:
            return entry.part, node, handle, blocks
    return NestPart(shape, variables, extents, limits, blocks, content), node, handle, blocks


_BODY = {For: "loop", SBlockRealize: "block", SeqStmt: "sequence"}


def _visit(
    stmt: Any,
    kind: type,
    chain: Chain,
    positions: Positions,
    loops: list[list[Any]],
    realizes: list[Any],
    chains: list[Chain],
    places: list[Positions],
) -> None:
    """Append what lies below `stmt`, in pre-order. Nested blocks are opaque."""
    opened = len(loops)
    while kind is For:
        around = chain[-1] if chain else -1
        chain = (*chain, len(loops))
        extent, annotations, body = stmt.extent, stmt.annotations, stmt.body
        below = type(body)
        annotated = map_size(annotations) > 0
        limit = int(annotations.get("pragma_auto_unroll_max_step", 0)) if annotated else 0
        loops.append(
            [
                hash(stmt.loop_var),
                extent.value if type(extent) is IntImm else -1,
                limit,
                int(stmt.kind),
                annotated,
                annotated and STAGE in annotations,
                around,
                _BODY.get(below, "other"),
                len(realizes),
                0,
            ]
        )
        stmt, kind = body, below
    if kind is SBlockRealize:
        realizes.append(stmt)
        chains.append(chain)
        places.append(positions)
    elif kind is SeqStmt:
        around = chain[-1] if chain else -1
        for i, child in enumerate(items(stmt.seq)):
            inside = (*positions, (around, i))
            _visit(child, type(child), chain, inside, loops, realizes, chains, places)
    for loop in range(opened, chain[-1] + 1 if chain else 0):
        loops[loop][-1] = len(realizes)


def _loop_nodes(stmt: Any, found: list[Any]) -> None:
    """Append the `For` nodes below `stmt`, in pre-order."""
    kind = type(stmt)
    while kind is For:
        found.append(stmt)
        stmt = stmt.body
        kind = type(stmt)
    if kind is SeqStmt:
        for child in items(stmt.seq):
            _loop_nodes(child, found)


class Loop:
    """A loop; `index` is its pre-order number, `parent` that of the loop around it or -1."""

    __slots__ = (
        "annotated",
        "blocks",
        "body",
        "chain",
        "extent",
        "index",
        "kind",
        "node",
        "parent",
        "unroll_limit",
        "var",
    )

    def __init__(
        self, part: NestPart, at: int, node: Any, first: int, block: int, around: Chain
    ) -> None:
        """Loop `at` of `part`, whose first loop and block have the numbers `first` and `block`."""
        self.index: int = first + at
        self.node = node
        self.var = part.variables[at]
        self.extent = part.extents[at]
        """-1 if not constant"""
        shape = part.shape
        self.kind = shape.kinds[at]
        self.annotated = shape.annotated[at]
        self.unroll_limit = part.unroll_limits[at]
        """that a pragma on the loop sets, 0 without one"""
        self.parent: int = around[-1] if around else -1
        self.chain: Chain = (*around, self.index)
        """loops from the outermost to this one, this one included"""
        self.body = shape.bodies[at]
        """"loop", "block", "sequence" or "other" """
        self.blocks: Sequence[int] = range(block + shape.firsts[at], block + shape.stops[at])
        """blocks below, in order"""


class Block:
    """A block with its place; `index` is its number in `get_child_blocks(root)`."""

    __slots__ = (
        "_at",
        "_entry",
        "_top",
        "bindings",
        "chain",
        "facts",
        "has_predicate",
        "index",
        "placement",
        "realize",
    )

    def __init__(self, entry: PlacedPart, at: int, top: int) -> None:
        """Block `at` of a part.

        `top` is the number of the part in the sequence of the root, -1 if there is no sequence.
        """
        place, first = entry.blocks[at], entry.loop
        chain = entry.part.shape.block_chains[at]
        self._entry, self._at, self._top = entry, at, top
        self.index: int = entry.block + at
        self.placement = place
        self.realize = place.realize
        self.facts = place.facts
        self.bindings = place.bindings
        """value of each iterator as a linear form of loop variables"""
        self.has_predicate = place.has_predicate
        self.chain: Chain = tuple([first + i for i in chain]) if first else chain
        """loops around it, outermost first"""

    @property
    def positions(self) -> Positions:
        """(loop or -1, position) for each sequence on the way from the root."""
        part, first = self._entry.part, self._entry.loop
        top = () if self._top < 0 else ((-1, self._top),)
        below = part.shape.positions[self._at]
        return (*top, *[(first + loop if loop >= 0 else -1, i) for loop, i in below])


class LoopNest:
    """All loops and blocks of a function, in pre-order."""

    __slots__ = ("_loops", "blocks", "exchange", "intermediates", "parts", "root", "size")

    def __init__(
        self, root: Any, parts: list[_Read], sequence: bool, before: LoopNest | None
    ) -> None:
        self.root = root
        self.intermediates = _intermediates(root)
        """handles of the buffers that the function allocates"""
        self.exchange: Any = None if before is None else before.exchange
        """filled by `exchange`; until then that of an earlier nest"""
        self.parts: list[PlacedPart] = []
        self.blocks: list[Block] = []
        loop = 0
        for top, read in enumerate(parts):
            entry = PlacedPart(*read, loop, len(self.blocks))
            self.parts.append(entry)
            place = top if sequence else -1
            self.blocks += [Block(entry, at, place) for at in range(len(entry.blocks))]
            loop += len(entry.part.variables)
        self.size = loop
        """number of loops"""
        self._loops: list[Loop] | None = None

    @property
    def loops(self) -> list[Loop]:
        """The loops; made when first asked for."""
        if self._loops is None:
            made: list[Loop] = []
            for part, node, _, _, first, block in self.parts:
                nodes: list[Any] = []
                _loop_nodes(node, nodes)
                for at, (parent, loop) in enumerate(zip(part.shape.parents, nodes, strict=True)):
                    around = made[first + parent].chain if parent >= 0 else ()
                    made.append(Loop(part, at, loop, first, block, around))
            self._loops = made
        return self._loops

    @property
    def placed(self) -> list[Placement]:
        """The blocks with their bindings."""
        return [place for entry in self.parts for place in entry.blocks]

    def first_block(self, loop: int) -> int:
        """The first block below `loop`; raises IndexError if there is no such loop."""
        if 0 <= loop < self.size:
            for entry in reversed(self.parts):
                if entry.loop <= loop:
                    found: int = entry.block + entry.part.shape.firsts[loop - entry.loop]
                    return found
        raise IndexError(loop)


_INTERMEDIATES = NodeCache()


def _intermediates(root: Any) -> frozenset[int]:
    """Handles of the buffers that a function allocates; cached by the array of them."""
    array = root.alloc_buffers
    handle = array.__chandle__()  # its hash would be that of its elements
    hit = _INTERMEDIATES.entries.get(handle)
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    made = frozenset([hash(buffer) for buffer in items(array)])
    return _INTERMEDIATES.put_at(handle, array, made)  # type: ignore[no-any-return]


def read_nest(mod: tx.PrimFunc | Any, before: LoopNest | None = None) -> LoopNest:
    """Loops and blocks of the function "main" of `mod`. Nested blocks are opaque.

    `before` is the nest of a program that it was made from, with which it shares what did not change.
    """
    root = mod["main"].body.block
    body = root.body
    kind = type(body)
    if kind is SeqStmt:
        parts = [_read_part(child, type(child), before) for child in items(body.seq)]
        return LoopNest(root, parts, True, before)
    return LoopNest(root, [_read_part(body, kind, before)], False, before)
