"""`to_html`: a decision graph as one page that needs no network and no server.

`page.html`, `page.css` and `page.js` are put together with the data. The data stands in a JSON
element in which `<`, `>` and `&` are escaped; the script shows text with `textContent` alone, and a
content security policy lets nothing else run or load.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from tirgym.harness.decision_graph.layout import places
from tirgym.harness.decision_graph.model import DecisionGraph
from tirgym.harness.decision_graph.queries import frontier
from tirgym.harness.decision_graph.told import to_dict
from tirgym.harness.html_page import embedded, fill, policy_hash

__all__ = ["to_html"]


def to_html(graph: DecisionGraph) -> str:
    """The page."""
    style, script = _part("page.css"), _part("page.js")
    kernels = sorted({root.workload.partition("?")[0].split("/")[-1] for root in graph.roots})
    parts = {
        "title": html.escape(f"Decision graph: {', '.join(kernels)}"),
        "policy": f"default-src 'none'; style-src {policy_hash(style)}; "
        f"script-src {policy_hash(script)}",
        "style": style,
        "script": script,
        "data": _data(graph),
    }
    return fill(_part("page.html"), parts)


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(graph: DecisionGraph) -> str:
    """The graph with places and promises, for the script."""
    told, at = to_dict(graph), places(graph)
    ahead = {
        found.state.id: {"promise": found.promise, "untried": _first(found.untried)}
        for root in range(len(graph.roots))
        for found in frontier(graph, root)
    }
    for node in told["nodes"]:
        node["x"], node["y"] = at[node["id"]]
        node["frontier"] = ahead.get(node["id"])
    return embedded(told, sort_keys=True)


def _first(texts: Iterable[str]) -> list[Any]:
    return list(texts)[:12]
