"""EarlyStop, and what an episode looks like."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from fakes import FakeCost, FakeEvaluator
from gymnasium.error import DependencyNotInstalled, ResetNeeded
from small import LIMITS, SMALL, TARGET

from tirgym.envs import EarlyStop, ScheduleEnv
from tirgym.errors import InvalidValueError
from tirgym.harness.evaluation import Level
from tirgym.harness.status import Status
from tirgym.harness.transforms import default_vocabulary
from tirgym.rewards.final_speedup import FinalSpeedup

SPLIT = "Split(loop=0, factor=2)"


def make(**keywords: Any) -> ScheduleEnv:
    made: dict[str, Any] = {
        "kernel": SMALL["matmul"],
        "reward": "static",
        "cost": FakeCost(),
        "vocabulary": default_vocabulary(limits=LIMITS),
        "arch": TARGET.arch,
    }
    return ScheduleEnv(**{**made, **keywords})


def test_early_stop_truncates_when_the_gain_dries_up() -> None:
    env = EarlyStop(make(), patience=2, gain=0.15)
    for _ in range(2):  # the second episode starts afresh
        env.reset(seed=0)
        flags = [env.step(np.flatnonzero(env.unwrapped.action_masks())[0])[3] for _ in range(3)]  # type: ignore[attr-defined]
        assert flags == [False, False, False]  # 1 / 0.9² grows by 23 % in two steps
        illegal = int(np.flatnonzero(~env.unwrapped.action_masks())[0])  # type: ignore[attr-defined]
        assert env.step(illegal)[3] is True  # 11 %


def test_early_stop_waits_for_its_patience_and_refuses_nonsense() -> None:
    env = EarlyStop(make(), patience=3)
    env.reset(seed=0)
    illegal = int(np.flatnonzero(~env.unwrapped.action_masks())[0])  # type: ignore[attr-defined]
    assert [env.step(illegal)[3] for _ in range(3)] == [False, False, True]
    for bad in ({"patience": 0}, {"patience": 1.5}, {"gain": -1.0}):
        with pytest.raises(InvalidValueError, match="at least"):
            EarlyStop(make(), **bad)


def test_early_stop_refuses_a_reward_that_it_would_never_see() -> None:
    with pytest.raises(InvalidValueError, match="paid at the end alone"):
        EarlyStop(make(reward=FinalSpeedup(), evaluator=FakeEvaluator()))


@pytest.mark.parametrize("verdict", [2.0, Status.WRONG_RESULT])
def test_early_stop_verifies_the_final_program(verdict: float | Status) -> None:
    evaluator = FakeEvaluator([1.5, verdict])
    env = EarlyStop(make(reward="measured", evaluator=evaluator), patience=1, gain=9.0)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.action_space.from_text(SPLIT))  # type: ignore[attr-defined]
    assert [level for _, level in evaluator.calls] == [Level.TRAINING, Level.FULL]
    assert reward == info["episode_return"]
    if verdict is Status.WRONG_RESULT:
        assert (reward, terminated, truncated, info["verified"]) == (-1.0, True, False, 0)
    else:
        assert (terminated, truncated, info["verified"]) == (False, True, 1)
        assert reward == pytest.approx(np.log(2))
    with pytest.raises(ResetNeeded):
        env.step(0)


def test_ansi_shows_the_last_action_and_both_trees() -> None:
    env = make(render_mode="ansi")
    env.reset(seed=0)
    assert "loop 0: i, extent 16, serial" in env.render()
    env.apply(SPLIT)
    shown = env.render()
    assert f"last action: {SPLIT}, reward +0.1054" in shown
    assert "- loop 0: i, extent 16, serial" in shown
    assert "+ loop 0: i_0, extent 8, serial" in shown
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    env.step(illegal)
    assert "rejected, illegal" in env.render()


def test_html_is_one_well_formed_page_without_outside_parts() -> None:
    env = make(render_mode="html")
    env.reset(seed=0)
    env.apply(SPLIT)
    page = env.render()
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}

    Reader().feed(page)
    assert found.count("pre") == 2
    assert '<span class="new">loop 0: i_0, extent 8, serial</span>' in page


def test_rgb_array_is_an_image() -> None:
    pytest.importorskip("matplotlib")
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert len(np.unique(image)) > 10


def test_rgb_arrays_have_one_shape() -> None:
    pytest.importorskip("matplotlib")
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    shapes = [env.render().shape]
    for text in (SPLIT, "Split(loop=2, factor=2)"):
        env.apply(text)
        shapes.append(env.render().shape)
    env.reset(options={"kernel": SMALL["softmax"]})
    assert {*shapes, env.render().shape} == {(1200, 1200, 3)}


def test_rgb_array_without_matplotlib_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(DependencyNotInstalled, match=r"tirgym\[plot\]"):
        env.render()


def test_render_without_a_mode_warns() -> None:
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None
