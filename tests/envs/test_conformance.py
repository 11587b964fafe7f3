"""What holds for every registered id in every form of observation."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import FakeEvaluator
from gymnasium.utils.env_checker import check_env
from hash_seeds import Alike
from small import LIMITS, SMALL

import tirgym  # noqa: F401  registers the ids
from tirgym.envs import ENVIRONMENTS
from tirgym.harness.macros import named_vocabulary
from tirgym.spaces.observation import OBSERVATIONS

TRITON = "tirgym/Triton-v0"
IDS = sorted(name for name in ENVIRONMENTS if name != TRITON or find_spec("triton"))
EVERY_ID = pytest.mark.parametrize("name", IDS)
EVERY_TABLE = pytest.mark.parametrize(
    ("name", "vocabulary"),
    [(name, "primitive") for name in IDS]
    + [(name, table) for name in IDS if "Schedule" in name for table in ("macro", "both")],
)
"""Every id, with each of the action tables that it has."""
SOFTMAX = "tirgym://triton-v0/softmax?m=6&n=20&dtype=float32"
SURE = 12
"""Actions at the start of the table of Triton programs that set block sizes: the compiler refuses none."""
EVERY_FORM = pytest.mark.parametrize("form", sorted(OBSERVATIONS))


def is_measured(name: str) -> bool:
    return bool(ENVIRONMENTS[name]["kwargs"]["reward"] != "static")


def arguments(name: str, form: str = "dict", vocabulary: str = "primitive") -> dict[str, Any]:
    """Keywords that make `name` quick: a small table, and no compiler runs for measured ids."""
    if name == TRITON:
        return {"kernel": SOFTMAX, "observation": form, "arch": "sm_90"}
    made: dict[str, Any] = {
        "kernel": SMALL["matmul"],
        "observation": form,
        "arch": "skylake-avx512",
    }
    if "Schedule" in name:
        made["vocabulary"] = named_vocabulary(vocabulary, limits=LIMITS)
    if is_measured(name):
        made["evaluator"] = FakeEvaluator()
    return made


def make(
    name: str, form: str = "dict", vocabulary: str = "primitive", **keywords: Any
) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(name, **arguments(name, form, vocabulary), **keywords)


@EVERY_TABLE
@EVERY_FORM
def test_gymnasium_accepts_it(name: str, form: str, vocabulary: str) -> None:
    env = gymnasium.make(name, disable_env_checker=True, **arguments(name, form, vocabulary))
    check_env(env.unwrapped, skip_render_check=True)


@EVERY_ID
def test_every_render_mode_is_accepted(name: str) -> None:
    env = gymnasium.make(name, disable_env_checker=True, **arguments(name))
    with warnings.catch_warnings():
        # "html" is none of Gymnasium's own render modes
        warnings.filterwarnings("ignore", message=".*render.*")
        check_env(env.unwrapped)


@EVERY_ID
def test_ids_are_data(name: str) -> None:
    spec = gymnasium.spec(name)
    assert isinstance(spec.entry_point, str)
    assert json.loads(spec.to_json())["id"] == name
    assert spec.nondeterministic == is_measured(name)
    given = arguments(name)
    env = gymnasium.make(f"tirgym:{name}", kernel=given["kernel"], arch=given["arch"])
    again = json.loads(env.spec.to_json())  # type: ignore[union-attr]
    assert again["kwargs"]["kernel"] == given["kernel"]
    env.close()


@EVERY_TABLE
@EVERY_FORM
def test_info_has_the_same_keys_types_and_shapes_always(
    name: str, form: str, vocabulary: str
) -> None:
    env = make(name, form, vocabulary)
    _, first = env.reset(seed=1)
    infos = [first]
    rng = np.random.default_rng(0)
    for number in range(5):
        legal = np.flatnonzero(infos[-1]["action_mask"][:-1])
        illegal = np.flatnonzero(infos[-1]["action_mask"] == 0)
        legal = legal[:SURE] if name == TRITON else legal
        action = rng.choice(illegal if number == 2 else legal)
        infos.append(env.step(action)[4])
    last = env.action_space.n - 1  # type: ignore[attr-defined]
    stop = infos[-1]["action_mask"][last]
    infos.append(env.step(last)[4])
    for info in infos:
        assert list(info) == list(first)
        for key, value in info.items():
            assert type(value) is type(first[key])
            if isinstance(value, np.ndarray):
                assert (value.shape, value.dtype) == (first[key].shape, first[key].dtype)
            else:
                assert isinstance(value, int | float | str)
    assert first["action_mask"].dtype == np.int8
    assert ("action_node" in first) == (form == "graph")
    assert [info["legal"] for info in infos] == [1, 1, 1, 0, 1, 1, stop]


@EVERY_TABLE
@EVERY_FORM
def test_sync_vector_environments(name: str, form: str, vocabulary: str) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: make(name, form, vocabulary)] * 2)
    _, infos = envs.reset(seed=3)
    assert infos["action_mask"].shape == (2, envs.single_action_space.n)  # type: ignore[attr-defined]
    for _ in range(3):
        actions = [np.flatnonzero(mask)[0] for mask in infos["action_mask"]]
        _, rewards, terminated, _, infos = envs.step(np.array(actions))
        assert rewards.shape == (2,)
        assert not terminated.any()
    assert np.array_equal(*infos["action_mask"])
    envs.close()


@pytest.mark.parametrize(
    ("name", "form", "vocabulary"),
    [
        ("tirgym/ScheduleStatic-v0", "dict", "primitive"),
        ("tirgym/ScheduleStatic-v0", "graph", "primitive"),
        pytest.param("tirgym/ScheduleStatic-v0", "text", "both", marks=pytest.mark.slow),
        pytest.param("tirgym/ScheduleStatic-v0", "dict", "macro", marks=pytest.mark.slow),
        ("tirgym/DecisionStatic-v0", "dict", "primitive"),
    ],
)
def test_async_vector_environments(name: str, form: str, vocabulary: str) -> None:
    """In a program of its own: processes that are spawned import the main module again."""
    command = [sys.executable, __file__, name, form, vocabulary]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def play_async(name: str, form: str, vocabulary: str) -> None:
    """One step of two environments, each in a process."""
    envs = gymnasium.vector.AsyncVectorEnv(
        [lambda: make(name, form, vocabulary)] * 2,
        shared_memory=form == "dict",
        context="spawn",
    )
    try:
        _, infos = envs.reset(seed=3)
        actions = [np.flatnonzero(mask)[0] for mask in infos["action_mask"]]
        observation, _, _, _, infos = envs.step(np.array(actions))
        assert infos["steps"].tolist() == [1, 1]
        if form == "dict":
            np.testing.assert_array_equal(observation["nodes"][0], observation["nodes"][1])
        if form == "text":
            assert observation[0].startswith("Kernel: matmul")
    finally:
        envs.close()


_RUN = """
import hashlib, sys
import gymnasium, numpy as np, tirgym
digest = hashlib.sha256()
def feed(x):
    if isinstance(x, dict):
        for key in sorted(x):
            digest.update(key.encode()); feed(x[key])
    elif isinstance(x, np.ndarray):
        digest.update(x.tobytes())
    elif isinstance(x, tuple):
        for part in x: feed(part)
    else:
        digest.update(repr(x).encode())
forms = ("dict", "graph", "features", "text")
more = {"ScheduleStatic": {"factors": [2, 4], "vocabulary": "both"},
        "DecisionStatic": {"candidate_costs": True}}
for name, form in [(name, form) for name in more for form in forms]:
    env = gymnasium.make(f"tirgym/{name}-v0", kernel=["matmul", "softmax"], shape="tiny",
                         observation=form, arch="skylake-avx512", **more[name])
    rng = np.random.default_rng(5)
    for episode in range(2):
        observation, info = env.reset(seed=11 if episode == 0 else None)
        for _ in range(4):
            action = rng.choice(np.flatnonzero(info["action_mask"][:-1]))
            observation, reward, _, _, info = env.step(action)
            feed((observation, reward, info))
print(digest.hexdigest())
"""


def test_same_seed_and_actions_give_the_same_bytes_in_every_process(alike: Alike) -> None:
    assert len(alike(_RUN).strip()) == 64


@pytest.mark.slow
@EVERY_TABLE
@EVERY_FORM
def test_stable_baselines3_accepts_it(name: str, form: str, vocabulary: str) -> None:
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker",
        reason="Stable-Baselines3 is not installed: pip install 'tirgym[rl]'",
    )
    env = gymnasium.make(name, **arguments(name, form, vocabulary)).unwrapped
    if form == "graph":
        with pytest.warns(UserWarning, match="Graph observation space is not supported"):
            checker.check_env(env, skip_render_check=True)
    elif form == "text":
        with pytest.raises(AssertionError, match="must be a numpy array"):
            checker.check_env(env, skip_render_check=True)
    else:
        with warnings.catch_warnings():
            # nodes are a matrix, on purpose: SB3's extractors flatten it
            warnings.filterwarnings("ignore", message=".*unconventional shape.*")
            checker.check_env(env, skip_render_check=True)


@pytest.mark.slow
def test_a_masked_policy_trains_on_the_default_observation() -> None:
    pytest.importorskip(
        "sb3_contrib", reason="sb3-contrib is not installed: pip install 'tirgym[rl]'"
    )
    from sb3_contrib import MaskablePPO

    env = gymnasium.make("tirgym/ScheduleStatic-v0", **arguments("tirgym/ScheduleStatic-v0"))
    model = MaskablePPO(
        "MultiInputPolicy", env, n_steps=64, batch_size=32, policy_kwargs={"net_arch": [16]}
    )
    model.learn(128)
    observation, info = env.reset(seed=0)
    for _ in range(5):
        action, _ = model.predict(observation, action_masks=env.unwrapped.action_masks())  # type: ignore[attr-defined]
        observation, _, terminated, truncated, info = env.step(action)
        assert info["legal"] == 1
        if terminated or truncated:
            break


def test_observations_and_infos_pickle() -> None:
    for form in sorted(OBSERVATIONS):
        for name in ("tirgym/ScheduleStatic-v0", "tirgym/DecisionStatic-v0"):
            env = make(name, form)
            assert pickle.loads(pickle.dumps(env.reset(seed=0)))


if __name__ == "__main__":
    play_async(*sys.argv[1:])
