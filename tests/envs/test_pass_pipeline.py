"""`tirgym/Passes-v0`: the compiler's own options as actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import FakeEvaluator
from small import SMALL

import tirgym  # noqa: F401  registers the ids
from tirgym.envs.pass_pipeline import PassPipelineEnv
from tirgym.errors import InvalidValueError
from tirgym.harness.backends.llvm_options import OPTIONS
from tirgym.harness.replay import replay

STEPS = (
    "Configure(option='llvm.opt_level', value=1)",
    "Configure(option='tir.unroll_max_step', value=64)",
    "STOP",
)


def made(**keywords: Any) -> PassPipelineEnv:
    keywords = {"kernel": SMALL["softmax"], "evaluator": FakeEvaluator(), **keywords}
    env = gymnasium.make("tirgym/Passes-v0", **keywords).unwrapped
    assert isinstance(env, PassPipelineEnv)
    return env


def test_actions_are_values_of_options_and_stop() -> None:
    env = made()
    assert env.action_space.n == sum(len(o.values) for o in OPTIONS.values()) + 1
    env.reset(seed=0)
    assert env.action_masks().sum() == sum(len(o.values) - 1 for o in OPTIONS.values()) + 1


@pytest.mark.parametrize("form", ["dict", "features", "text", "graph"])
def test_every_form_shows_the_options(form: str) -> None:
    env = made(observation=form)
    first, info = env.reset(seed=0)
    second, _, _, _, after = env.apply(STEPS[0])
    assert env.observation_space.contains(first)
    assert env.observation_space.contains(second)
    changed = [
        n for n, a, b in zip(OPTIONS, info["options"], after["options"], strict=True) if a != b
    ]
    assert changed == ["llvm.opt_level"]
    if form == "text":
        assert "llvm.opt_level=1" in second
    elif form == "dict":
        assert (second["options"] == after["options"]).all()
    elif form == "features":
        assert (second[-len(OPTIONS) :] == after["options"]).all()
    assert env.options["llvm.opt_level"] == 1


def test_the_pass_log_follows_the_options() -> None:
    env = made()
    env.reset(seed=0)
    names = [record.name.rpartition(".")[2] for record in env.pass_log()]
    env.apply("Configure(option='tir.StorageRewrite', value=0)")
    fewer = [record.name.rpartition(".")[2] for record in env.pass_log()]
    assert "StorageRewrite" in names
    assert fewer == [name for name in names if name != "StorageRewrite"]


@pytest.mark.parametrize("reward", ["static", "model"])
def test_rewards_that_do_not_see_options_are_refused(reward: str) -> None:
    with pytest.raises(InvalidValueError, match="measured, final or replay"):
        made(reward=reward)


def test_a_measured_episode_is_verified_and_its_trace_replays(tmp_path: Path) -> None:
    env = made(evaluator=None, store=str(tmp_path / "store.sqlite"))
    try:
        env.reset(seed=0)
        played = [env.apply(text) for text in STEPS]
        trace = env.trace()
    finally:
        env.close()
    assert trace.transforms == STEPS[:-1]
    assert {info["status"] for *_, info in played} <= {"passed", "noisy"}
    program = replay(trace)
    assert program.ir_key == trace.ir_key
    assert np.isfinite([reward for _, reward, *_ in played]).all()
