"""Checkpoints: what comes back, and every reason for which one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policies import POLICIES, make_policy, untrained

pytest.importorskip("sb3_contrib")
pytest.importorskip("torch_geometric")
pytest.importorskip("safetensors")

import gymnasium
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tirgym.baselines.ppo import checkpoint, extra
from tirgym.baselines.ppo.checkpoint import load_policy, read_header, save_policy
from tirgym.baselines.ppo.header import CheckpointHeader
from tirgym.baselines.ppo.player import Player
from tirgym.baselines.ppo.policy import GraphPolicy
from tirgym.errors import (
    DamagedFileError,
    InvalidValueError,
    MissingExtraError,
    TargetMismatchError,
    UnknownNameError,
    UsageError,
)
from tirgym.harness.backend import backend
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import load_workload, split_of

HEADER = CheckpointHeader(
    "ppo-gnn", "tirgym/Decision-v0", "core-v0", "train", ("matmul", "softmax"), 5000, "replay", 3
)


@pytest.mark.parametrize("agent", sorted(POLICIES))
@pytest.mark.parametrize("environment", ["tirgym/Decision-v0", "tirgym/ScheduleStatic-v0"])
def test_a_policy_comes_back_with_the_same_logits(
    agent: str, environment: str, tmp_path: Path
) -> None:
    policy = make_policy(agent, environment)
    path = tmp_path / "policy.safetensors"
    save_policy(policy, path, replace(HEADER, agent=agent, environment=environment))
    found = load_policy(path)
    assert path.stat().st_size < 5_000_000
    env = gymnasium.make(environment, observation=POLICIES[agent], kernel="matmul", shape="tiny")
    observation, info = env.reset(seed=0)
    logits = []
    for each in (policy, found):
        tensors, _ = each.obs_to_tensor(observation)
        mask = info["action_mask"][None]
        with torch.no_grad():
            logits.append(each.get_distribution(tensors, mask).distribution.logits)
    assert torch.equal(*logits)
    action, _ = found.predict(observation, action_masks=info["action_mask"], deterministic=True)
    assert info["action_mask"][action] == 1


def test_the_header_comes_back_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "policy.safetensors"
    save_policy(make_policy("ppo-gnn", HEADER.environment, width=32), path, HEADER)
    found = read_header(path)
    assert (found.kernels, found.steps, found.reward) == (("matmul", "softmax"), 5000, "replay")
    assert found.network["width"] == 32
    assert found.observation == "dict"
    assert CheckpointHeader.from_json(found.to_json()) == found


def test_the_same_policy_and_header_make_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        save_policy(make_policy("ppo-gnn", HEADER.environment, seed=4), path, HEADER)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def with_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the header of a checkpoint."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["tirgym-policy"])
    change(header)
    save_file(load_file(path), path, metadata={"tirgym-policy": json.dumps(header)})


@pytest.mark.parametrize(
    ("field", "value", "error", "said"),
    [
        ("version", "9.1.0", TargetMismatchError, "another version of tirgym"),
        ("layout", "0" * 16, TargetMismatchError, "another observation"),
        ("actions", "0" * 16, TargetMismatchError, "another action table"),
        ("format", 2, DamagedFileError, "its format is not 1"),
        ("steps", "many", DamagedFileError, "steps is 'many'"),
        ("surprise", 1, DamagedFileError, "unexpected fields: surprise"),
        ("network", {"depth": 3}, DamagedFileError, "depth"),
        ("network", {"width": 32}, DamagedFileError, "weights of another network"),
        ("environment", "tirgym/Chess-v0", UnknownNameError, "environment of a policy"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(
    field: str, value: Any, error: type[UsageError], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.safetensors"
    untrained(path)
    with_header(path, lambda header: header.update({field: value}))
    with pytest.raises(error, match=said) as caught:
        load_policy(path)
    assert "\n" not in str(caught.value)
    if error is not UnknownNameError:
        assert "tirgym train" in str(caught.value)


def test_files_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    with pytest.raises(DamagedFileError, match="no such file"):
        load_policy(path)
    path.write_bytes(b"PK\x03\x04 a pickle in a zip")
    with pytest.raises(DamagedFileError, match="not a readable policy checkpoint"):
        load_policy(path)
    with pytest.raises(DamagedFileError, match="not a readable policy checkpoint"):
        load_policy(tmp_path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(DamagedFileError, match="no policy of tirgym"):
        load_policy(path)


def test_damage_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    untrained(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DamagedFileError):
        load_policy(path)
    for place in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFileError, match="its weights were changed"):
            load_policy(path)


def test_policies_that_nobody_could_load_are_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    env = gymnasium.make("tirgym/Schedule-v0", factors=(3, 5), vocabulary="primitive")
    policy = GraphPolicy(env.observation_space, env.action_space, lambda _: 1e-3)
    with pytest.raises(InvalidValueError, match="default factors"):
        save_policy(policy, path, replace(HEADER, environment="tirgym/Schedule-v0"))
    with pytest.raises(InvalidValueError, match="trained in tirgym/Decision-v0"):
        save_policy(make_policy("ppo-mlp", "tirgym/Schedule-v0"), path, HEADER)
    assert not path.exists()


def test_macro_vocabularies_come_back(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    env = gymnasium.make("tirgym/Schedule-v0", vocabulary="macro")
    policy = GraphPolicy(env.observation_space, env.action_space, lambda _: 1e-3)
    save_policy(policy, path, replace(HEADER, environment="tirgym/Schedule-v0"))
    assert read_header(path).vocabulary == "macro"
    assert load_policy(path).action_space == env.action_space


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "sb3_contrib" else name)
    with pytest.raises(MissingExtraError, match=r"pip install 'tirgym\[rl\]'"):
        load_policy(tmp_path / "policy.safetensors")


def test_without_a_shipped_checkpoint_one_line_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkpoint, "files", lambda package: tmp_path)
    with pytest.raises(UsageError, match="tirgym train --agent ppo-gnn") as caught:
        checkpoint.shipped_checkpoint("ppo-gnn")
    assert "--checkpoint" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_loading_leaves_the_generator_of_torch_alone(tmp_path: Path) -> None:
    path = untrained(tmp_path / "policy.safetensors")
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    load_policy(path)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("agent", ["ppo-gnn", "ppo-mlp"])
def test_what_ships_was_trained_on_train_families_and_plays_others(agent: str) -> None:
    path = checkpoint.shipped_checkpoint(agent)
    header = read_header(path)
    assert (header.agent, header.split) == (agent, "train")
    splits = {split_of(load_workload(kernel).kernel) for kernel in header.kernels}
    assert splits == {Split.TRAIN}
    assert path.stat().st_size < 5_000_000
    start = backend("llvm").start(load_workload("core-v0/softmax"), Target("llvm", "x86-64-v3"))
    walks = Player(path).walks(start)
    paths = walks.follow(3, 1.0, np.random.default_rng(0))
    assert len(set(paths)) > 1
    for path_taken in paths:
        assert walks.state(path_taken).question is None
