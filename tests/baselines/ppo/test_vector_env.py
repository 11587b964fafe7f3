"""Environments over processes: what they answer does not depend on where they run."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nan_reward import NanReward
from paid_late import PaidLate

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.vec_env import VecEnv

from tirgym.baselines.ppo.env_spec import EnvSpec
from tirgym.baselines.ppo.remote_group import RemoteGroup
from tirgym.baselines.ppo.vector_env import GroupedVecEnv
from tirgym.errors import InvalidValueError, TrainingError, UnknownNameError, WorkerDiedError

SPEC = EnvSpec(kernels=("core-v0/add", "core-v0/row_sum"), shapes="tiny", seed=3)


def play(env: GroupedVecEnv, steps: int, seed: int = 0) -> list[Any]:
    """Legal random actions; what is observed, paid and told."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        masks = np.stack(env.env_method("action_masks"))
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
        observations, rewards, dones, infos = env.step(actions)
        shown = {key: value.tolist() for key, value in observations.items()}
        seen.append((shown, rewards.tolist(), dones.tolist(), [i.get("episode") for i in infos]))
    return seen


def test_processes_do_not_change_what_happens_and_states_go_on() -> None:
    alone, spread = GroupedVecEnv(SPEC, 3, 0), GroupedVecEnv(SPEC, 3, 2)
    try:
        assert isinstance(alone, VecEnv)
        assert [group.size for group in spread.groups] == [2, 1]
        first = alone.reset()
        assert isinstance(first, dict)
        for key, values in spread.reset().items():  # type: ignore[union-attr]
            assert np.array_equal(first[key], values)
        assert play(alone, 12) == play(spread, 12)
        states = json.loads(json.dumps(alone.state()))
        assert states == spread.state()
        expected = play(alone, 12, seed=1)
        play(spread, 5, seed=2)
        spread.restore(states)
        assert play(spread, 12, seed=1) == expected
    finally:
        alone.close()
        spread.close()


def test_the_end_of_an_episode_is_told_as_learners_expect() -> None:
    env = GroupedVecEnv(SPEC, 1, 0)
    env.reset()
    total, ended = 0.0, False
    while not ended:
        mask = env.env_method("action_masks")[0]
        _, rewards, dones, infos = env.step(np.array([int(np.flatnonzero(mask)[0])]))
        total, ended = total + float(rewards[0]), bool(dones[0])
    (info,) = infos
    assert info["episode"]["r"] == pytest.approx(total, abs=1e-5)
    assert np.log(info["episode"]["speedup"]) == pytest.approx(total, abs=1e-5)
    assert info["episode"]["invalid"] == info["episode"]["verified"] == 0
    assert info["TimeLimit.truncated"] is False
    assert set(info["terminal_observation"]) == set(env.observation_space.spaces)
    env.close()


@pytest.mark.parametrize(
    ("reward", "more"),
    [("static", True), ("paid_late:PaidLate", False), ("replay", False)],
)
def test_what_is_cut_off_has_more_to_come_only_where_each_step_is_paid(
    reward: str, more: bool
) -> None:
    spec = EnvSpec(kernels=("core-v0/row_sum",), shapes="default", reward=reward, max_steps=1)
    env = GroupedVecEnv(replace(spec, store="core-v0"), 1, 0)
    env.reset()
    (legal,) = env.env_method("action_masks")
    _, _, dones, infos = env.step(np.array([int(np.flatnonzero(legal)[0])]))
    env.close()
    assert bool(dones[0])
    assert infos[0]["TimeLimit.truncated"] is more
    assert PaidLate().pays_at_end


def test_illegal_actions_are_counted() -> None:
    env = GroupedVecEnv(SPEC, 1, 0)
    env.reset()
    env.step(np.array([31]))
    ended = False
    while not ended:
        _, _, dones, infos = env.step(np.array([0]))
        ended = bool(dones[0])
    assert infos[0]["episode"]["invalid"] == 1
    env.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reward_that_is_no_number_names_kernel_and_step(workers: int) -> None:
    spec = EnvSpec(kernels=("core-v0/row_sum",), shapes="tiny", reward="nan_reward:NanReward")
    env = GroupedVecEnv(spec, 1, workers)
    assert NanReward().total == 0
    try:
        env.reset()
        with pytest.raises(TrainingError, match=r"nan at step \d+ .* tirgym://core-v0/row_sum"):
            play(env, 20)
    finally:
        env.close()


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"observation": "graph"}, InvalidValueError, "stacks observations"),
        ({"env": "tirgym/Decide-v0"}, UnknownNameError, "tirgym/Decision-v0"),
        ({"reward": "statik"}, UnknownNameError, "package.module:Class"),
        ({"reward": "nowhere:Reward"}, InvalidValueError, "nowhere"),
        ({"kernels": ("matmull",)}, UnknownNameError, "matmul"),
        ({"curriculum": "hard"}, UnknownNameError, "rounds"),
    ],
)
def test_bad_specs_are_refused(changed: dict[str, Any], error: type[Exception], said: str) -> None:
    spec = EnvSpec(**{"kernels": ("core-v0/add",), "shapes": "tiny", **changed})
    with pytest.raises(error, match=said):
        GroupedVecEnv(spec, 1, 0)


def test_a_worker_that_dies_is_told_in_one_line() -> None:
    group = RemoteGroup(SPEC, [0])
    group.send("reset")
    group.receive()
    os.kill(group.pid, signal.SIGSTOP)
    group.send("step", [0])
    os.kill(group.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="goes on from its last checkpoint"):
        group.receive()
    group.close()
