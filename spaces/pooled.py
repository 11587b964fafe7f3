"""`pooled`: a graph of any tables as a flat vector of fixed length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirgym.spaces.graph import BOUND, GraphTables, IRGraph

__all__ = ["pooled", "pooled_names"]


def pooled_names(tables: GraphTables) -> tuple[str, ...]:
    """Names of the entries of `pooled`."""
    hardware, *kinds = tables.node_types
    names = [f"hardware.{name}" for name in tables.features[hardware]]
    names += [f"count.{kind.name.lower()}" for kind in kinds]
    for kind in kinds:
        for pool in ("sum", "max"):
            names += [f"{pool}.{kind.name.lower()}.{name}" for name in tables.features[kind]]
    names += [f"count.{edge.name.lower()}" for edge in tables.edge_types]
    return tuple(names)


def pooled(graph: IRGraph) -> NDArray[np.float32]:
    """(len(pooled_names(graph.tables)),), float32 in [-8, 8]; a pure function of the graph.

    Sums are divided by 64, counts are log2(1 + x) / 4, of edges / 16.
    """
    tables, offsets, counts = graph.tables, graph.offsets, graph.counts
    hardware, *kinds = tables.node_types
    parts: list[NDArray[Any]] = [
        graph.nodes[0, tables.columns[hardware]],
        np.log2(1.0 + np.array(counts[1:])) / 4,
    ]
    for kind in kinds:
        rows = graph.nodes[offsets[kind] : offsets[kind] + counts[kind], tables.columns[kind]]
        parts.append(rows.sum(axis=0) / 64)
        parts.append(rows.max(axis=0) if len(rows) else np.zeros(rows.shape[1], np.float32))
    amount = np.bincount(graph.edge_types, minlength=len(tables.edge_types))
    parts.append(np.log2(1.0 + amount) / 16)
    flat: NDArray[np.float32] = np.concatenate(parts).astype(np.float32)
    return np.clip(flat, -BOUND, BOUND, out=flat)
