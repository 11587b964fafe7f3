"""`FeatureObservation`: a flat vector of fixed length, pooled over the graph ("features")."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.spaces.graph import (
    BOUND,
    COLUMNS,
    EDGE_FEATURES,
    FEATURES,
    TENSORIR,
    EdgeType,
    IRGraph,
    NodeType,
    tables_of,
)
from tirgym.spaces.pooled import pooled, pooled_names
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["FEATURE_NAMES", "INNERMOST", "FeatureObservation", "features"]

_POOLED = (NodeType.LOOP, NodeType.BLOCK, NodeType.BUFFER)
INNERMOST = 4
"""Innermost loops whose own features are shown, of the block with the most work."""


def _names() -> tuple[str, ...]:
    names = [f"hardware.{name}" for name in FEATURES[NodeType.HARDWARE]]
    names += [f"count.{kind.name.lower()}" for kind in NodeType]
    for kind in _POOLED:
        for pool in ("sum", "max"):
            names += [f"{pool}.{kind.name.lower()}.{name}" for name in FEATURES[kind]]
    for edge in EdgeType:
        names.append(f"count.{edge.name.lower()}")
        names += [f"mean.{edge.name.lower()}.{name}" for name in EDGE_FEATURES]
    names += [f"hot.block.{name}" for name in FEATURES[NodeType.BLOCK]]
    for place in range(INNERMOST):
        names += [f"hot.loop{place}.{name}" for name in FEATURES[NodeType.LOOP]]
    return tuple(names)


FEATURE_NAMES: tuple[str, ...] = _names()
"""Names of the entries; "hot" is the block with the largest product of loop extents, loop0 its
innermost loop."""


def features(graph: IRGraph) -> NDArray[np.float32]:
    """(len(FEATURE_NAMES),), float32 in [-8, 8]; a pure function of the graph."""
    offsets, counts = graph.offsets, graph.counts
    parts: list[NDArray[Any]] = [
        graph.nodes[0, COLUMNS[NodeType.HARDWARE]],
        np.log2(1.0 + np.array(counts)) / 4,
    ]
    rows = {}
    for kind in NodeType:
        start = offsets[kind]
        rows[kind] = graph.nodes[start : start + counts[kind], COLUMNS[kind]]
    for kind in _POOLED:
        part, width = rows[kind], len(FEATURES[kind])
        parts.append(part.sum(axis=0) / 8)
        parts.append(part.max(axis=0) if len(part) else np.zeros(width, np.float32))
    amount = np.bincount(graph.edge_types, minlength=len(EdgeType))
    totals = np.zeros((len(EdgeType), len(EDGE_FEATURES)))
    np.add.at(totals, graph.edge_types, graph.edges)
    means = totals / np.maximum(amount, 1)[:, None]
    parts.append(np.concatenate([np.log2(1.0 + amount)[:, None] / 16, means], axis=1).ravel())
    parts.append(_hottest(graph, rows))
    flat: NDArray[np.float32] = np.concatenate(parts).astype(np.float32)
    return np.clip(flat, -BOUND, BOUND, out=flat)


def _hottest(graph: IRGraph, rows: dict[NodeType, NDArray[np.float32]]) -> NDArray[np.float32]:
    """The block with the most loop trips (the first of equals) and its innermost loops."""
    found = np.zeros((INNERMOST, len(FEATURES[NodeType.LOOP])), np.float32)
    blocks = rows[NodeType.BLOCK]
    if not len(blocks):
        return np.zeros(len(FEATURES[NodeType.BLOCK]) + found.size, np.float32)
    trips = blocks[:, FEATURES[NodeType.BLOCK].index("log_trips")]
    hot = int(trips.argmax())
    nesting = graph.edge_types == EdgeType.NESTING
    parent = dict(
        zip(graph.links[1, nesting].tolist(), graph.links[0, nesting].tolist(), strict=True)
    )
    node = parent[graph.offsets[NodeType.BLOCK] + hot]
    for place in range(INNERMOST):
        if node == 0:
            break
        found[place] = rows[NodeType.LOOP][node - graph.offsets[NodeType.LOOP]]
        node = parent[node]
    return np.concatenate([blocks[hot], found.ravel()])


class FeatureObservation:
    """The program as one vector: `features`, or `pooled` for other dialects than TensorIR; the action
    mask stands in `info`."""

    def __init__(self, actions: TransformSpace) -> None:
        tables = tables_of(actions.vocabulary.dialect)
        self._pool = features if tables is TENSORIR else pooled
        names = FEATURE_NAMES if tables is TENSORIR else pooled_names(tables)
        self.space = Box(-BOUND, BOUND, (len(names),), np.float32)

    def observe(
        self, program: Program, graph: IRGraph, mask: NDArray[np.int8]
    ) -> NDArray[np.float32]:
        """The vector."""
        return self._pool(graph)

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """0: pooling has room for every graph."""
        return 0
