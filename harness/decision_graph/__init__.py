"""The decision graph: what runs visited, merged by IR state, with what each step gained.

runs = read_runs("runs/softmax")          # records and traces
graph = build_graph(runs)
best_path(graph), frontier(graph), regret(graph, edge), lost_time(trace, graph)
save_graph(graph, "graph.html")           # or .json, .graphml, .dot
"""

from __future__ import annotations

from tirgym.harness.decision_graph.build import build_graph
from tirgym.harness.decision_graph.export import FORMATS, save_graph
from tirgym.harness.decision_graph.legal import LegalTransforms
from tirgym.harness.decision_graph.lost_time import LostTime, StepGain, lost_time
from tirgym.harness.decision_graph.model import DecisionGraph, Edge, Root, State
from tirgym.harness.decision_graph.queries import (
    Continuation,
    best_path,
    best_state,
    frontier,
    promise,
    regret,
)
from tirgym.harness.decision_graph.sources import Runs, read_runs

__all__ = [
    "FORMATS",
    "Continuation",
    "DecisionGraph",
    "Edge",
    "LegalTransforms",
    "LostTime",
    "Root",
    "Runs",
    "State",
    "StepGain",
    "best_path",
    "best_state",
    "build_graph",
    "frontier",
    "lost_time",
    "promise",
    "read_runs",
    "regret",
    "save_graph",
]
