"""The table of decision agents: every one can be made and answers real questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from policies import untrained
from services import POINT

from tirgym.harness.decisions import Guard, design_space
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.dataset import Dataset
from tirgym.performance_model.training import train
from tirgym.serving.agents import DECISION_AGENTS, decision_agent_maker

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


def test_every_agent_of_the_table_is_tested_here() -> None:
    assert set(DECISION_AGENTS) == {"static", "random", "model", "policy"}
