"""Texts in and texts out, for every environment."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from fakes import FakeEvaluator

import tirgym  # noqa: F401
from tirgym.envs import ENVIRONMENTS, TextActions
from tirgym.errors import InvalidValueError
from tirgym.spaces.text_budget import count_tokens

STATIC = ["tirgym/ScheduleStatic-v0", "tirgym/DecisionStatic-v0"]


def wrapped(name: str, max_tokens: int = 900, patience: int = 3, **options: Any) -> TextActions:
    options = {"kernel": "softmax", "shape": "tiny", "reward": "static", **options}
    return TextActions(gym.make(name, **options), max_tokens, patience)


IDS = sorted(name for name in ENVIRONMENTS if "Triton" not in name or find_spec("triton"))


@pytest.mark.parametrize("name", IDS)
def test_an_episode_of_texts_in_every_environment(name: str) -> None:
    measured: dict[str, Any] = {"reward": "measured", "evaluator": FakeEvaluator()}
    more = {"tirgym/Passes-v0": measured, "tirgym/Triton-v0": {"arch": "sm_90"}}
    env = wrapped(name, max_steps=6, **more.get(name, {}))
    rng, over = np.random.default_rng(0), False
    observation, info = env.reset(seed=0)
    assert info["refused"] == ""
    while not over:
        legal = env.legal_texts()
        if "Triton" in name:  # the compiler may refuse others
            legal = [text for text in legal if text.startswith(("SetMeta", "STOP"))]
        text = legal[int(rng.integers(len(legal)))]
        observation, _, terminated, truncated, info = env.step(f"  {text.upper()} ")
        assert (info["refused"], info["legal"]) == ("", 1)
        assert env.observation_space.contains(observation)
        assert count_tokens(observation) <= 900
        over = terminated or truncated


@pytest.mark.parametrize("name", STATIC)
def test_texts_that_name_no_action_change_nothing_and_end_the_episode_at_last(name: str) -> None:
    env = wrapped(name)
    first, info = env.reset(seed=0)
    for _ in range(2):
        observation, reward, terminated, truncated, more = env.step("make it fast, please")
        assert (observation, reward, terminated, truncated) == (first, 0.0, False, False)
        assert more["steps"] == 0
        assert "expected" in more["refused"]
        assert set(more) == set(info)
    assert env.step(env.legal_texts()[0])[4]["refused"] == ""  # which starts the count anew
    for _ in range(2):
        assert not any(env.step("")[2:4])
    assert env.step("")[2:4] == (False, True)


def test_an_illegal_action_is_the_environments_own_no_op() -> None:
    env = wrapped("tirgym/ScheduleStatic-v0")
    first, _ = env.reset(seed=0)
    observation, reward, _, _, info = env.step("Vectorize(loop=0)")
    assert (observation, info["legal"], info["steps"]) == (first, 0, 1)
    assert reward < 0
    assert "'Vectorize(loop=0)' is not accepted; expected one" in info["refused"]


def test_only_environments_with_texts_are_wrapped() -> None:
    with pytest.raises(InvalidValueError, match="Schedule or Decision"):
        TextActions(gym.make("CartPole-v1"))
    with pytest.raises(InvalidValueError, match="at least 400"):
        wrapped(STATIC[0], max_tokens=10)
    for patience in (0, 1.5):
        with pytest.raises(InvalidValueError, match="patience"):
            wrapped(STATIC[0], patience=patience)  # type: ignore[arg-type]
