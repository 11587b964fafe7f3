"""`GraphSpace`: the graph as a `gymnasium.spaces.Graph`, of any size ("graph")."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Graph, GraphInstance
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.spaces.graph import BOUND, TENSORIR, GraphTables, IRGraph, tables_of
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["GraphObservation", "GraphSpace", "to_instance"]


class GraphSpace(Graph):
    """Nodes as `NODE_FEATURES`; edges as one-hot `EdgeType` and then `EDGE_FEATURES`; those of
    `tables` for other dialects than TensorIR.

    Stable-Baselines3 and Minari cannot hold this space (use "dict" there); AsyncVectorEnv needs
    `shared_memory=False` for it.
    """

    def __init__(
        self, seed: int | np.random.Generator | None = None, tables: GraphTables = TENSORIR
    ) -> None:
        width = len(tables.edge_types) + len(tables.edge_features)
        super().__init__(
            node_space=Box(-BOUND, BOUND, (len(tables.node_features),), np.float32),
            edge_space=Box(-BOUND, BOUND, (width,), np.float32),
            seed=seed,
        )


def to_instance(graph: IRGraph) -> GraphInstance:
    """`graph` as a member of `GraphSpace`: nodes, edges, and edge_links (edges, 2) in int32."""
    one_hot = np.eye(len(graph.tables.edge_types), dtype=np.float32)[graph.edge_types]
    edges = np.concatenate([one_hot, graph.edges], axis=1)
    return GraphInstance(graph.nodes.copy(), edges, graph.links.T.copy())


class GraphObservation:
    """Nodes without padding: hardware, loops, blocks, buffers, numbered as in `IRGraph`.

    `info["action_node"]`, (n,) int32, is the node that each action targets, -1 where there is none.
    """

    def __init__(self, actions: TransformSpace) -> None:
        self.space = GraphSpace(tables=tables_of(actions.vocabulary.dialect))
        self._vocabulary = actions.vocabulary

    def observe(self, program: Program, graph: IRGraph, mask: NDArray[np.int8]) -> GraphInstance:
        """The graph."""
        return to_instance(graph)

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """The targeted nodes."""
        return {"action_node": graph.action_nodes(self._vocabulary)}

    def overflow(self, graph: IRGraph) -> int:
        """0: a graph of any size is shown in full."""
        return 0
