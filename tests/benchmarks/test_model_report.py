"""The report on models: its groups, and that it compares with the static cost on the same programs."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from learned import HELD_OUT, KERNELS

from tirgym.benchmarks.model_report import _lines, report
from tirgym.performance_model.dataset import Dataset

pytest.importorskip("xgboost")


def test_models_and_static_cost_are_judged_on_families_that_no_model_saw(dataset: Dataset) -> None:
    found = report(dataset, ["trees"], leave_out=True)
    assert json.loads(json.dumps(asdict(found)))["held_out"][0]["kind"] == "trees"
    (trees,) = found.held_out
    assert [row["workload"] for row in trees.rows] == [HELD_OUT]
    assert trees.rows[0]["model"]["programs"] == trees.rows[0]["static"]["programs"]
    assert found.kernels == {"train": len(KERNELS), "val": 1}
    assert sum(found.programs.values()) == len(dataset.samples)
    assert found.leave_one_out["all"]["workloads"] == len(KERNELS) + 1
    assert trees.train_cpu_s >= 0
    assert trees.predict_cpu_ms > 0
    lines = _lines(found)
    assert len({len(line) for line in lines}) == 1
    assert {line[2] for line in lines} == {"model", "static"}
