"""`save_graph`: a decision graph as JSON, GraphML, DOT, or one HTML page.

Numbers that nobody knows are null in JSON and left out elsewhere. GraphML is read by networkx,
igraph, Gephi and yEd, DOT by Graphviz.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.decision_graph.model import DecisionGraph
from tirgym.harness.decision_graph.page import to_html
from tirgym.harness.decision_graph.queries import best_path
from tirgym.harness.decision_graph.told import to_dict
from tirgym.harness.whole_file import write_whole

__all__ = ["FORMATS", "format_of", "save_graph", "to_dot", "to_graphml", "to_json"]


def to_json(graph: DecisionGraph) -> str:
    """`to_dict` as text, sorted keys, one line."""
    return json.dumps(to_dict(graph), sort_keys=True, allow_nan=False) + "\n"


# -- GraphML ----------------------------------------------------------------------------------

_WHOLE = ("visits", "runs", "depth", "parent")


def to_graphml(graph: DecisionGraph) -> str:
    """GraphML 1.0 with typed attributes on nodes and edges; lists are text, joined by "; ".

    http://graphml.graphdrawing.org/specification.html
    """
    told = to_dict(graph)
    document = ElementTree.Element("graphml", xmlns="http://graphml.graphdrawing.org/xmlns")
    body = ElementTree.Element("graph", id="decisions", edgedefault="directed")
    keys: dict[tuple[str, str], str] = {}
    for node in told["nodes"]:
        element = ElementTree.SubElement(body, "node", id=_xml(node["id"]))
        root = graph.roots[node["root"]]
        values = {**node, "workload": root.workload, "target": str(root.target)}
        _attributes(document, element, "node", values, ("id", "root"), keys)
    for edge in told["edges"]:
        ends = {"source": _xml(edge["source"]), "target": _xml(edge["target"])}
        element = ElementTree.SubElement(body, "edge", {"id": f"e{edge['id']}", **ends})
        _attributes(document, element, "edge", edge, ("id", "source", "target"), keys)
    document.append(body)
    ElementTree.indent(document)
    return ElementTree.tostring(document, "unicode", xml_declaration=True) + "\n"


def _attributes(
    document: ElementTree.Element,
    element: ElementTree.Element,
    kind: str,
    values: Mapping[str, Any],
    leave_out: tuple[str, ...],
    keys: dict[tuple[str, str], str],
) -> None:
    """Put `values` on `element`, and declare in `document` those that are new."""
    for name, value in values.items():
        if name in leave_out or value is None or value in ("", [], ()):
            continue
        if isinstance(value, list | tuple):
            value = "; ".join(map(str, value))
        found = keys.get((kind, name))
        if found is None:
            found = keys[kind, name] = f"{kind}.{name}"
            declared = {"id": found, "for": kind, "attr.name": name}
            ElementTree.SubElement(document, "key", {**declared, "attr.type": _type(name, value)})
        ElementTree.SubElement(element, "data", key=found).text = _xml(str(value))


def _type(name: str, value: object) -> str:
    if not isinstance(value, int | float):
        return "string"
    return "long" if name in _WHOLE else "double"


def _xml(text: str) -> str:
    """`text` without the characters that XML 1.0 has no way to hold."""
    return "".join(
        c if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff") else "�" for c in text
    )


# -- DOT --------------------------------------------------------------------------------------

_FILL = {"passed": "#7fcdbb", "": "#ffffff", "wrong_result": "#d55e00", "flaky": "#d55e00"}
_OTHER_FILL = "#cccccc"


def to_dot(graph: DecisionGraph) -> str:
    """Graphviz text, left to right, the best paths in bold."""
    best = {edge.id for root in range(len(graph.roots)) for edge in best_path(graph, root)}
    return "\n".join(_dot_lines(graph, best)) + "\n"


def _dot_lines(graph: DecisionGraph, best: set[int]) -> Iterator[str]:
    yield "digraph decisions {"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style=filled, fontname="sans-serif", fontsize=10];'
    yield '  edge [fontname="sans-serif", fontsize=9];'
    names = {root.state: root.workload for root in graph.roots}
    for state in graph.states.values():
        said = state.status if state.speedup is None else f"{state.speedup:.2f}x"
        parts = (names.get(state.id, ""), state.point, said, f"visits {state.visits}")
        label = _quoted("\n".join(part for part in parts if part))
        fill = _FILL.get(state.status, _OTHER_FILL)
        yield f'  {_quoted(state.id)} [label={label}, fillcolor="{fill}"];'
    for edge in graph.edges:
        gain = "" if edge.gain is None else f"\n{edge.gain:+.2f} {edge.gain_from}"
        bold = ", penwidth=3" if edge.id in best else ""
        label = _quoted(edge.label + gain)
        yield f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [label={label}{bold}];"
    yield "}"


def _quoted(text: str) -> str:
    """A DOT string: quotes and backslashes escaped, line ends as \\n."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", " ").replace("\0", " ") + '"'


# -- files ------------------------------------------------------------------------------------

_WRITERS: dict[str, Callable[[DecisionGraph], str]] = {
    "html": to_html,
    "json": to_json,
    "graphml": to_graphml,
    "dot": to_dot,
}
FORMATS = tuple(_WRITERS)
"""Names of formats, which are also the endings of their files."""


def format_of(path: str | os.PathLike[str], wanted: str | None = None) -> str:
    """`wanted`, or the format that the ending of `path` means.

    Raises UnknownNameError or InvalidValueError.
    """
    if wanted is not None:
        if wanted not in FORMATS:
            raise UnknownNameError("graph format", wanted, FORMATS)
        return wanted
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        accepted = f"a file name ending in {', '.join('.' + name for name in FORMATS)}, or a format"
        raise InvalidValueError("graph file", str(path), accepted)
    return ending


def save_graph(
    graph: DecisionGraph, path: str | os.PathLike[str], wanted: str | None = None
) -> None:
    """Write `graph` whole or not at all, in the format of `format_of`."""
    text = _WRITERS[format_of(path, wanted)](graph)
    write_whole(path, text.encode(errors="replace"))
