"""The benchmark of replayed steps plays the same episodes both ways."""

from __future__ import annotations

from pathlib import Path

from recorded import fill_with_walks
from small import SMALL

from tirgym.benchmarks.replay_steps import replay_steps
from tirgym.harness.store import Store


def test_reports_are_complete(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    fill_with_walks(store, [SMALL["add"], SMALL["softmax"]], 4)
    store.close()
    reports = replay_steps(store.path, rounds=2, episodes=3)
    assert [report.round for report in reports] == [1, 2]
    for report in reports:
        assert report.workloads == 1  # softmax is no training kernel
        assert report.steps >= 3 * 3
        assert min(report.replay_per_s, report.static_per_s, report.ratio) > 0
