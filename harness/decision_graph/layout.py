"""`places`: where each state stands on the page."""

from __future__ import annotations

from collections.abc import Mapping

from tirgym.harness.decision_graph.model import DecisionGraph

__all__ = ["places"]

_GAP = 3
"""Free rows between two roots; the second of them gets a heading."""


def places(graph: DecisionGraph) -> Mapping[str, tuple[int, int]]:
    """Column and row of each state, from 0 on; no two share a place.

    The column is the distance from the root. Rows are those of the tree of shortest ways: a state
    stands in the row of its best child, the others below, those that lead to faster programs first.
    So the best path is a straight line at the top. Edges that are not in the tree have no say.
    """
    children: dict[str, list[str]] = {name: [] for name in graph.states}
    for name, edge in graph.parents.items():
        children[edge.source].append(name)
    below: dict[str, float] = {}
    """speedup of the fastest state in each part of the tree"""
    for name in sorted(graph.states, key=lambda name: -graph.depths[name]):
        own = graph.states[name].speedup or 0.0
        below[name] = max([own, *(below[child] for child in children[name])])
    for names in children.values():
        names.sort(key=lambda name: (-below[name], -graph.states[name].visits, name))
    found: dict[str, tuple[int, int]] = {}
    row = 0
    for root in graph.roots:
        waiting = [root.state]
        while waiting:
            name = waiting.pop()
            found[name] = graph.depths[name], row
            waiting += reversed(children[name])
            row += not children[name]
        row += _GAP
    return found
