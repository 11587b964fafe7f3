"""The boards that lie in the repository: whole, readable, and what their tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tirgym.benchmarks.leaderboard.folder import BoardFolder
from tirgym.benchmarks.leaderboard.verdicts import Standing
from tirgym.benchmarks.leaderboard.verifying import read_verified
from tirgym.kernels_suite.registry import load_workload

BOARDS = sorted((Path(__file__).parents[3] / "benchmarks" / "leaderboards").iterdir())


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_every_row_is_there_and_every_answer_has_a_verdict(path: Path) -> None:
    folder = BoardFolder(path)
    plan, (records, problems) = folder.plan(), folder.records()
    assert plan is not None
    assert problems == []
    assert {record.key for record in records} == set(plan.rows())
    for uri in plan.workloads:
        assert load_workload(uri).uri == uri
    verdicts = {verdict.key: verdict for verdict in read_verified(folder).verified}
    asked = {(*row, trials) for row in plan.rows() for trials in plan.trials}
    assert set(verdicts) == asked
    assert {v.standing for v in verdicts.values()} <= {Standing.VERIFIED, Standing.NOT_APPLICABLE}


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_nothing_names_a_folder_of_the_machine(path: Path) -> None:
    texts = [file for file in path.rglob("*") if file.suffix in (".json", ".jsonl", ".html", ".md")]
    assert (path / "site" / "index.html") in texts
    for file in texts:
        text = file.read_text(encoding="utf-8")
        assert not any(place in text for place in ("/home/", "/root/", "/tmp/", "/Users/")), file
