"""`to_dict`: a decision graph and what the queries say about it, as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tirgym.harness.decision_graph.model import DecisionGraph, Edge, State
from tirgym.harness.decision_graph.queries import best_path, best_state, regret

__all__ = ["to_dict"]

FORMAT = "tirgym-graph-1"


def to_dict(graph: DecisionGraph) -> dict[str, Any]:
    """JSON values: `roots`, `nodes` and `edges`, each with what the queries say about it.

    A root has `best` (state id) and `best_path` (edge ids). A node has the fields of `State`, its
    `depth`, `parent` (edge on a shortest way from the root), `best` (fastest state within reach).
    An edge has the fields of `Edge` and its `regret`.
    """
    return {
        "format": FORMAT,
        "roots": [_root(graph, number) for number in range(len(graph.roots))],
        "nodes": [_node(graph, state) for state in graph.states.values()],
        "edges": [_edge(graph, edge) for edge in graph.edges],
        "warnings": list(graph.warnings),
    }


def _root(graph: DecisionGraph, number: int) -> dict[str, Any]:
    root, best = graph.roots[number], best_state(graph, number)
    return {
        **asdict(root),
        "best": best.id if best else None,
        "best_speedup": best.speedup if best else None,
        "best_path": [edge.id for edge in best_path(graph, number)],
        "best_transforms": list(graph.transforms(best.id)) if best else [],
    }


def _node(graph: DecisionGraph, state: State) -> dict[str, Any]:
    parent, reach = graph.parents.get(state.id), graph.reach.get(state.id)
    return {
        **asdict(state),
        "depth": graph.depths[state.id],
        "parent": parent.id if parent else None,
        "best": reach.id if reach else None,
    }


def _edge(graph: DecisionGraph, edge: Edge) -> dict[str, Any]:
    return {**asdict(edge), "regret": regret(graph, edge)}
