"""The table of decision agents: every one can be made and answers real questions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from policies import untrained
from services import POINT

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions import Guard, ModelAgent, design_space
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.dataset import Dataset
from tirgym.performance_model.training import train
from tirgym.serving.agents import (
    DECISION_AGENTS,
    decision_agent_maker,
    model_agent,
    policy_agent,
)
from tirgym.spaces.point_observer import PointObserver

TARGET = Target("llvm", "skylake-avx512", 1)


def first_point() -> Any:
    workload = load_workload("tirgym://core-v0/softmax?m=16&n=32&dtype=float32")
    return design_space(TensorIRProgram.start(workload, TARGET)).point()


@pytest.mark.parametrize("name", ["static", "random"])
def test_agents_without_files_answer(name: str) -> None:
    guard = Guard(decision_agent_maker(name)())
    guard.decide(first_point())
    assert guard.report.taken == 1


def test_options_have_the_types_of_their_defaults() -> None:
    draws = [
        [decision_agent_maker("random", [f"seed={seed}"])().decide(POINT).option] for seed in "1111"
    ]
    assert draws == [draws[0]] * 4
    made = decision_agent_maker("served_agents:Last", ["confidence=0.25", "note=a=b"])()
    answer = made.decide(POINT)
    assert (answer.confidence, answer.explanation) == (0.25, "a=b")


def test_a_policy_answers(tmp_path: Path) -> None:
    for module in ("sb3_contrib", "torch_geometric"):
        pytest.importorskip(module)
    checkpoint = untrained(tmp_path / "policy.safetensors")
    guard = Guard(decision_agent_maker("policy", [f"checkpoint={checkpoint}"])(), seconds=None)
    answer = guard.decide(first_point())
    assert guard.report.messages == []
    assert 0 < answer.confidence <= 1


def test_a_trained_model_answers(dataset: Dataset, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    train(dataset).save(tmp_path / "model")
    guard = Guard(decision_agent_maker("model", [f"model={tmp_path / 'model'}"])(), seconds=None)
    answer = guard.decide(first_point())
    assert guard.report.messages == []
    assert answer.predicted_gain is not None


class Even:
    """A model that has no opinion."""

    def opinions(self, programs: Sequence[Any]) -> Any:
        return np.zeros((1, len(programs)))


@pytest.mark.parametrize("dot", [".py", ".p%79", "%2Epy"])
def test_a_point_of_others_runs_no_file(dot: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    point = replace(first_point(), workload=f"tirgym://local/{tmp_path}/mine{dot}:K?n=1")
    for ask in (ModelAgent(cast(Any, Even()), files=False).decide, PointObserver(files=False)):
        with pytest.raises(InvalidValueError, match="no Python file is run"):
            ask(point)
    for make in (model_agent, policy_agent):
        assert inspect.signature(make).parameters["files"].default is False
    assert not (tmp_path / "ran").exists()


def test_every_agent_of_the_table_is_tested_here() -> None:
    assert set(DECISION_AGENTS) == {"static", "random", "model", "policy"}
