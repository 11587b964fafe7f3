"""The benchmark of policies counts what it says."""

from __future__ import annotations

import pytest

pytest.importorskip("sb3_contrib")
pytest.importorskip("torch_geometric")

from tirgym.benchmarks.policy_speed import measure


def test_reports_are_complete_and_threads_are_left_as_they_were() -> None:
    import torch

    threads = torch.get_num_threads()
    graph, flat = (measure(a, "tirgym/DecisionStatic-v0", 16, 1) for a in ("ppo-gnn", "ppo-mlp"))
    assert torch.get_num_threads() == threads
    assert graph.nodes > 3
    assert graph.edges > graph.nodes
    assert (flat.nodes, flat.edges) == (0, 0)
    assert graph.legal_actions == flat.legal_actions >= 2
    for report in (graph, flat):
        assert report.parameters > 1000
        assert min(report.one_ms, report.sixteen_ms, report.update_ms) > 0
