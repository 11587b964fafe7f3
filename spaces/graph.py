"""`IRGraph`: one program as a graph of loops, blocks, buffers and its hardware; the encoder table.

Types and features of nodes and edges stand in `GraphTables`, one for each family of dialects: those of
TensorIR here, those of Triton in `tirgym.spaces.triton_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import UnknownNameError
from tirgym.harness.program import Program
from tirgym.harness.vocabulary import Vocabulary

__all__ = [
    "BOUND",
    "COLUMNS",
    "EDGE_FEATURES",
    "ENCODERS",
    "NODE_FEATURES",
    "TABLES",
    "TENSORIR",
    "EdgeType",
    "Encoder",
    "GraphTables",
    "IRGraph",
    "NodeType",
    "encoder_for",
    "tables_of",
]

BOUND = 8.0
"""Every feature lies in [-BOUND, BOUND]: sizes are log2(1 + x) / 16, counts are divided by 8."""


class NodeType(IntEnum):
    """What a node stands for; nodes are numbered in this order."""

    HARDWARE = 0
    """the target, and the root of the nesting: exactly one"""
    LOOP = 1
    BLOCK = 2
    BUFFER = 3


class EdgeType(IntEnum):
    """What an edge says."""

    NESTING = 0
    """parent → child loop or block; top-level loops and blocks are children of the hardware node"""
    ORDER = 1
    """a loop or block → the next one of the same sequence"""
    READ = 2
    """buffer → block, one for each read region"""
    WRITE = 3
    """block → buffer, one for each write region"""
    READ_STRIDE = 4
    """loop → buffer: how far one iteration moves a read"""
    WRITE_STRIDE = 5
    """loop → buffer: how far one iteration moves a write"""


FEATURES: dict[NodeType, tuple[str, ...]] = {
    NodeType.HARDWARE: (
        "llvm", "cuda", "triton", "opencl", "rocm", "other_backend",
        "log_vector_bytes", "log_l1_bytes", "log_l2_bytes", "log_l3_bytes", "log_threads",
    ),
    NodeType.LOOP: (
        "log_extent", "serial", "parallel", "vectorized", "unrolled", "thread_bound",
        "annotated", "depth", "log_trips", "log_power_of_two", "blocks", "spatial", "reduce",
        "holds_loop", "holds_block", "holds_sequence",
    ),
    NodeType.BLOCK: (
        "log_instances", "log_trips", "spatial_iters", "reduce_iters", "reads", "writes",
        "has_init", "has_predicate", "annotated", "depth", "exact_bindings",
        "adds", "multiplies", "divides", "calls", "selects", "loads",
    ),
    NodeType.BUFFER: (
        "log_elements", "log_bytes", "rank", "log_last_extent", "item_bytes", "is_float",
        "on_chip", "parameter", "output",
    ),
}  # fmt: skip
"""Names of the features of each node type; `log_x` is log2(1 + x) / 16."""

EDGE_FEATURES: tuple[str, ...] = ("log_stride", "negative", "unit", "zero", "exact", "log_elements")
"""Names of the columns of `IRGraph.edges`: of strides, and of the region of a read or write."""


@dataclass(frozen=True, eq=False)
class GraphTables:
    """Types of nodes and edges, and the names of their features; pickles as its place."""

    place: str
    """ "module:ATTRIBUTE" where it is defined"""
    node_types: type[IntEnum]
    """numbered from 0 in the order of the nodes; 0 is the hardware"""
    edge_types: type[IntEnum]
    features: Mapping[Any, tuple[str, ...]]
    """features of each node type"""
    columns: Mapping[Any, slice]
    """columns of the node feature matrix that belong to each type, behind the one-hot"""
    node_features: tuple[str, ...]
    """names of the columns of `IRGraph.nodes`"""
    edge_features: tuple[str, ...]
    """names of the columns of `IRGraph.edges`"""
    room: tuple[tuple[int, ...], int] | None = None
    """nodes of each type and edges that the padded form has slots for; None: as many as the limits of
    the vocabulary say"""

    @classmethod
    def of(
        cls,
        place: str,
        node_types: type[IntEnum],
        edge_types: type[IntEnum],
        features: Mapping[Any, tuple[str, ...]],
        edge_features: tuple[str, ...],
        room: tuple[tuple[int, ...], int] | None = None,
    ) -> GraphTables:
        """Node columns: the one-hot of the types, then the features of each type in its order."""
        names = [f"is_{kind.name.lower()}" for kind in node_types]
        columns = {}
        for kind, own in features.items():
            columns[kind] = slice(len(names), len(names) + len(own))
            names += [f"{kind.name.lower()}.{name}" for name in own]
        return cls(
            place, node_types, edge_types, features, columns, tuple(names), edge_features, room
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _tables_at, (self.place,)


def _tables_at(place: str) -> GraphTables:
    module, _, name = place.partition(":")
    return cast(GraphTables, getattr(import_module(module), name))


TENSORIR = GraphTables.of(f"{__name__}:TENSORIR", NodeType, EdgeType, FEATURES, EDGE_FEATURES)

TABLES: Mapping[str, str] = {"triton": "tirgym.spaces.triton_tables:TRITON"}
"""IR dialect → "module:ATTRIBUTE" of its tables; the others have those of TensorIR."""


def tables_of(dialect: str) -> GraphTables:
    """Types and features of the graphs of an IR dialect."""
    return _tables_at(TABLES[dialect]) if dialect in TABLES else TENSORIR


COLUMNS: dict[NodeType, slice] = dict(TENSORIR.columns)
"""Columns of the node feature matrix that belong to each type; the first four are its one-hot."""

NODE_FEATURES: tuple[str, ...] = TENSORIR.node_features
"""Names of the columns of `IRGraph.nodes`."""


@dataclass(frozen=True, slots=True)
class IRGraph:
    """Nodes in the order of their types: hardware, loops, blocks, buffers; all arrays are read-only.

    A pure function of the kernel, the target and the applied transforms; blind to names.
    """

    counts: tuple[int, ...]
    """nodes of each `NodeType`"""
    nodes: NDArray[np.float32]
    """(nodes, len(NODE_FEATURES)): one-hot type, then the columns of each type (`COLUMNS`)"""
    edges: NDArray[np.float32]
    """(edges, len(EDGE_FEATURES))"""
    edge_types: NDArray[np.int32]
    """(edges,): `EdgeType`"""
    links: NDArray[np.int32]
    """(2, edges): source and target node"""
    tables: GraphTables = TENSORIR
    """what types and columns mean; for another dialect than TensorIR, read its types and names for
    those of this module"""

    @property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first node of each `NodeType`."""
        return tuple(accumulate(self.counts[:-1], initial=0))

    @property
    def node_types(self) -> NDArray[np.int32]:
        """(nodes,): `NodeType`."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    def action_nodes(self, vocabulary: Vocabulary) -> NDArray[np.int32]:
        """(len(vocabulary) + 1,): node that each action targets, -1 where there is none.

        The last action is STOP, which targets the hardware node, as whole-program transforms do.
        """
        kind, index = target_slots(vocabulary)
        exists = index < np.array(self.counts, np.int32)[kind]
        return np.where(exists, np.array(self.offsets, np.int32)[kind] + index, -1).astype(np.int32)


_KIND = {"program": NodeType.HARDWARE, "loop": NodeType.LOOP, "block": NodeType.BLOCK}
_slots: dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}


def target_slots(vocabulary: Vocabulary) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Node type and index among the nodes of that type for each action, STOP last; cached."""
    if vocabulary.digest not in _slots:
        refs = [transform.node for transform in vocabulary]
        kind = np.array([*(_KIND[ref.kind] for ref in refs), NodeType.HARDWARE], np.int32)
        index = np.array([*(ref.index for ref in refs), 0], np.int32)
        _slots[vocabulary.digest] = kind, index
    return _slots[vocabulary.digest]


class Encoder(Protocol):
    """Shows the programs of one IR dialect."""

    def encode(self, program: Program) -> IRGraph:
        """The program as a graph."""

    def tree(self, program: Program) -> list[str]:
        """One line for each loop and block, numbered as transforms address them, indented."""


ENCODERS: dict[str, str] = {
    "tensorir": "tirgym.spaces.tensorir:TensorIREncoder",
    "triton": "tirgym.spaces.triton:TritonEncoder",
}
"""IR dialect → "module:Class"; imported only when asked for."""


@cache
def encoder_for(dialect: str) -> Encoder:
    """The encoder of an IR dialect; raises UnknownNameError."""
    if dialect not in ENCODERS:
        raise UnknownNameError("IR dialect", dialect, sorted(ENCODERS))
    module, _, name = ENCODERS[dialect].partition(":")
    return cast(Encoder, getattr(import_module(module), name)())
