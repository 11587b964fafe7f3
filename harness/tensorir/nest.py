"""`LoopNest`: loops, blocks and accesses of one TensorIR function, read in one cheap walk.

The function is read part by part: a `NestPart` is one statement of its root with all below it, which
TVM shares between schedule copies as long as nothing in it changes. A step changes one or two of
them, so most of what a step asks for was found out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm.tirx as tx
from tvm.s_tir import SBlockRealize
from tvm.tirx import For, IntImm, SeqStmt

from tirgym.harness.tensorir.block_facts import (
    Access,
    BlockFacts,
    Buffer,
    Placement,
    block_facts,
    placement,
)
from tirgym.harness.tensorir.linear import Linear, linear
from tirgym.harness.tensorir.node_cache import NodeCache, items

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
    "Placement",
    "block_facts",
    "items",
    "linear",
    "read_nest",
]

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING = range(5)
SPATIAL, REDUCE = 0, 2

Chain = tuple[int, ...]


class NestPart:
    """One statement of a function's root and all below it; loops and blocks are numbered from 0.

    One record for each node. What other modules find out about it is kept in slots of the record.
    """

    __slots__ = (
        "annotated",
        "block_chains",
        "blocks",
        "bodies",
        "cost",
        "extents",
        "facts",
        "firsts",
        "kinds",
        "node",
        "parents",
        "positions",
        "shown",
        "stops",
        "unroll_limits",
        "variables",
    )

    def __init__(self, node: Any, kind: type) -> None:
        reader = _Reader()
        reader.visit(node, kind, (), ())
        self.node = node
        self.variables = tuple(reader.variables)
        """handle of the variable of each loop"""
        self.extents = tuple(reader.extents)
        """-1 if not constant"""
        self.kinds = tuple(reader.kinds)
        self.annotated = tuple(reader.annotated)
        self.unroll_limits = tuple(reader.unroll_limits)
        """that a pragma on the loop sets, 0 without one"""
        self.parents = tuple(reader.parents)
        """-1 for the outermost loop"""
        self.bodies = tuple(reader.bodies)
        """"loop", "block", "sequence" or "other" """
        self.firsts, self.stops = tuple(reader.firsts), tuple(reader.stops)
        """first block below each loop, and the one after the last"""
        self.blocks = tuple(reader.blocks)
        self.block_chains = tuple(reader.block_chains)
        """loops around each block, outermost first"""
        self.positions = tuple(reader.positions)
        """(loop or -1, position) for each sequence on the way to each block"""
        self.facts: Any = None
        """filled by `facts`"""
        self.cost: Any = None
        """filled by the static cost model"""
        self.shown: Any = None
        """filled by the encoder of graphs"""

    def loop_nodes(self) -> list[Any]:
        """The `For` nodes."""
        found: list[Any] = []
        _collect_loops(self.node, found)
        return found


class _Reader:
    """Collects loops and blocks in pre-order. Nested blocks are opaque."""

    def __init__(self) -> None:
        self.variables: list[int] = []
        self.extents: list[int] = []
        self.kinds: list[int] = []
        self.annotated: list[bool] = []
        self.unroll_limits: list[int] = []
        self.parents: list[int] = []
        self.bodies: list[str] = []
        self.firsts: list[int] = []
        self.stops: list[int] = []
        self.blocks: list[Placement] = []
        self.block_chains: list[Chain] = []
        self.positions: list[tuple[tuple[int, int], ...]] = []

    def visit(
        self, stmt: Any, kind: type, chain: Chain, positions: tuple[tuple[int, int], ...]
    ) -> None:
        """Read `stmt`, which is of `kind`, and all below it."""
        opened = len(self.stops)
        while kind is For:
            index = len(self.variables)
            self.parents.append(chain[-1] if chain else -1)
            chain = (*chain, index)
            body = stmt.body
            below = type(body)
            self._loop(stmt, _BODY.get(below, "other"))
            stmt, kind = body, below
        if kind is SBlockRealize:
            self.blocks.append(placement(stmt))
            self.block_chains.append(chain)
            self.positions.append(positions)
        elif kind is SeqStmt:
            around = chain[-1] if chain else -1
            for i, child in enumerate(items(stmt.seq)):
                self.visit(child, type(child), chain, (*positions, (around, i)))
        for loop in chain:
            if loop >= opened:
                self.stops[loop] = len(self.blocks)

    def _loop(self, node: Any, body: str) -> None:
        extent, annotations = node.extent, node.annotations
        annotated = len(annotations) > 0
        self.variables.append(hash(node.loop_var))
        self.extents.append(extent.value if type(extent) is IntImm else -1)
        self.kinds.append(int(node.kind))
        self.annotated.append(annotated)
        limit = annotations.get("pragma_auto_unroll_max_step", 0) if annotated else 0
        self.unroll_limits.append(int(limit))
        self.bodies.append(body)
        self.firsts.append(len(self.blocks))
        self.stops.append(0)


_BODY = {For: "loop", SBlockRealize: "block", SeqStmt: "sequence"}


def _collect_loops(stmt: Any, found: list[Any]) -> None:
    kind = type(stmt)
    while kind is For:
        found.append(stmt)
        stmt = stmt.body
        kind = type(stmt)
    if kind is SeqStmt:
        for child in items(stmt.seq):
            _collect_loops(child, found)


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
        self.kind = part.kinds[at]
        self.annotated = part.annotated[at]
        self.unroll_limit = part.unroll_limits[at]
        """that a pragma on the loop sets, 0 without one"""
        self.parent: int = around[-1] if around else -1
        self.chain: Chain = (*around, self.index)
        """loops from the outermost to this one, this one included"""
        self.body = part.bodies[at]
        """"loop", "block", "sequence" or "other" """
        self.blocks: Sequence[int] = range(block + part.firsts[at], block + part.stops[at])
        """blocks below, in order"""


class Block:
    """A block with its place; `index` is its number in `get_child_blocks(root)`."""

    __slots__ = (
        "_at",
        "_first",
        "_part",
        "_top",
        "bindings",
        "chain",
        "facts",
        "has_predicate",
        "index",
        "placement",
        "realize",
    )

    def __init__(self, index: int, part: NestPart, at: int, first: int, top: int) -> None:
        """Block `at` of `part`, whose first loop has the number `first`.

        `top` is the number of the part in the sequence of the root, -1 if there is no sequence.
        """
        place = part.blocks[at]
        chain = part.block_chains[at]
        self._part, self._at, self._first, self._top = part, at, first, top
        self.index = index
        self.placement = place
        self.realize = place.realize
        self.facts = place.facts
        self.bindings = place.bindings
        """value of each iterator as a linear form of loop variables"""
        self.has_predicate = place.has_predicate
        self.chain: Chain = tuple([first + i for i in chain]) if first else chain
        """loops around it, outermost first"""

    @property
    def positions(self) -> tuple[tuple[int, int], ...]:
        """(loop or -1, position) for each sequence on the way from the root."""
        top = () if self._top < 0 else ((-1, self._top),)
        first = self._first
        below = [
            (first + loop if loop >= 0 else -1, i) for loop, i in self._part.positions[self._at]
        ]
        return (*top, *below)


class LoopNest:
    """All loops and blocks of a function, in pre-order."""

    __slots__ = ("_loops", "blocks", "parts", "root", "size")

    def __init__(self, root: Any, parts: Sequence[NestPart], sequence: bool) -> None:
        self.root = root
        self.parts: list[tuple[NestPart, int, int]] = []
        """each with the numbers of its first loop and its first block"""
        self.blocks: list[Block] = []
        first = 0
        for top, part in enumerate(parts):
            block = len(self.blocks)
            self.parts.append((part, first, block))
            place = top if sequence else -1
            for at in range(len(part.blocks)):
                self.blocks.append(Block(block + at, part, at, first, place))
            first += len(part.variables)
        self.size = first
        """number of loops"""
        self._loops: list[Loop] | None = None

    @property
    def loops(self) -> list[Loop]:
        """The loops; made when first asked for."""
        if self._loops is None:
            made: list[Loop] = []
            for part, first, block in self.parts:
                for at, (parent, node) in enumerate(
                    zip(part.parents, part.loop_nodes(), strict=True)
                ):
                    around = made[first + parent].chain if parent >= 0 else ()
                    made.append(Loop(part, at, node, first, block, around))
            self._loops = made
        return self._loops

    def first_block(self, loop: int) -> int:
        """The first block below `loop`."""
        part, first, block = self.place(loop)
        return block + part.firsts[loop - first]

    def place(self, loop: int) -> tuple[NestPart, int, int]:
        """The part that holds `loop`, with the numbers of its first loop and block.

        Raises IndexError if there is no such loop.
        """
        if 0 <= loop < self.size:
            for entry in reversed(self.parts):
                if entry[1] <= loop:
                    return entry
        raise IndexError(loop)


_PARTS = NodeCache(1 << 11)
_ROOTS = NodeCache(1 << 10)


def _part(node: Any, kind: type) -> NestPart:
    """The record of one statement of the root; cached by node."""
    hit = _PARTS.entries.get(hash(node))
    if hit is not None:
        return hit  # type: ignore[no-any-return]
    return _PARTS.put(node, NestPart(node, kind))  # type: ignore[no-any-return]


def read_nest(mod: tx.PrimFunc | Any) -> LoopNest:
    """Loops and blocks of the function "main" of `mod`. Nested blocks are opaque."""
    root = mod["main"].body.block
    body = root.body
    kind = type(body)
    if kind is SeqStmt:
        return LoopNest(root, [_part(child, type(child)) for child in items(body.seq)], True)
    return LoopNest(root, [_part(body, kind)], False)
