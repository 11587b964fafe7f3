"""Trainings that a performance model pays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import learned
import pytest

for package in ("sb3_contrib", "torch_geometric", "safetensors", "tensorboard", "xgboost"):
    pytest.importorskip(package)

from trainings import SMALLEST

from tirgym.baselines.ppo.training import TrainResult, train
from tirgym.errors import InvalidValueError
from tirgym.performance_model.training import train as train_model

if TYPE_CHECKING:
    from tirgym.performance_model.dataset import Dataset

MODELLED = replace(
    SMALLEST,
    reward="model",
    kernels=("core-v0/add", "core-v0/row_sum", "core-v0/matmul", "core-v0/transpose"),
    steps=64,
)


def scores(result: TrainResult) -> list[tuple[int, float]]:
    return [(row["steps"], row["mean_return"]) for row in result.evaluations]


@pytest.fixture(scope="module")
def models(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Performance models: one of training families, one that also saw softmax."""
    folder = tmp_path_factory.mktemp("models")
    families = {"train": None, "all": (*learned.KERNELS, "softmax")}
    for name, fitted in families.items():
        train_model(dataset, families=fitted).save(folder / name)
    return {name: str(folder / name) for name in families}


def test_a_model_pays_and_trainings_repeat(models: dict[str, str], tmp_path: Path) -> None:
    args = replace(MODELLED, model=models["train"])
    first = train(replace(args, out=str(tmp_path / "first")))
    again = train(replace(args, out=str(tmp_path / "again"), workers=1))
    assert first.policy.read_bytes() == again.policy.read_bytes()
    unpaid = train(replace(args, reward="static", model=None, out=str(tmp_path / "static")))
    assert scores(first) != scores(unpaid)


def test_a_model_that_saw_what_is_held_out_is_refused(models: dict[str, str]) -> None:
    with pytest.raises(InvalidValueError, match=r"which saw .*softmax"):
        replace(MODELLED, model=models["all"]).check()


@pytest.mark.parametrize(("reward", "model"), [("model", None), ("static", "m.tirgym")])
def test_model_and_reward_come_together(reward: str, model: str | None) -> None:
    with pytest.raises(InvalidValueError, match="model"):
        replace(MODELLED, reward=reward, model=model).check()
