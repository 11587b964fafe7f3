"""What docs/environments.md and docs/gate.md name is what there is; programs of docs/extending.md run."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

from tirgym.harness import transforms
from tirgym.harness.status import Status
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Regime

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "environments.md").read_text("utf-8")


def named(head: str, page: str = PAGE) -> set[str]:
    """What stands in backquotes in the first column of the table below `head`."""
    rows = page.partition(head)[2].partition("\n\n")[0].splitlines()
    return {name for row in rows for name in re.findall(r"`([\w\"]+)`", row.split("|")[1])}


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def run(text: str, file: Path) -> dict[str, Any]:
    file.write_text(text, "utf-8")
    return runpy.run_path(str(file))


def test_entries_and_keys_are_those_that_there_are() -> None:
    entries, keys = set[str](), set[str]()
    for name in ("tirgym/ScheduleStatic-v0", "tirgym/DecisionStatic-v0"):
        env = gym.make(name, kernel="add", shape="tiny")
        _, info = env.reset(seed=0)
        assert isinstance(env.observation_space, gym.spaces.Dict)
        entries |= set(env.observation_space)
        keys |= set(info)
        env.close()
    assert named('| entry of `"dict"`') == entries
    assert named("| key of `info`") == keys - {"question"}
    assert named("| status | pays") == set(map(str, Status))


def test_regimes_are_those_that_there_are() -> None:
    page = (DOCS / "gate.md").read_text("utf-8")
    assert named("| regime |", page) == set(map(str, Regime))


def test_fields_of_a_trace_are_those_that_there_are() -> None:
    page = (DOCS / "command-line.md").read_text("utf-8")
    table = page.partition("### What is in a trace")[2]
    assert named("| field |", table) == {"format", *Trace.__slots__}


def test_a_reward_of_ones_own_pays(tmp_path: Path) -> None:
    env = run(programs("environments.md")[0], tmp_path / "page.py")["env"].unwrapped
    env.reset(seed=0)
    _, reward, _, _, info = env.apply("STOP")
    assert (reward, info["speedup"], info["episode_return"]) == (0.0, 1.0, 0.0)


def test_a_transform_of_ones_own_is_an_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform, environment, agent = programs("extending.md")
    (tmp_path / "my_package.py").write_text(transform, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("SplitInThree", "my_package:SplitInThree", "tirgym.transforms")
    monkeypatch.setattr(transforms, "entry_points", lambda group: [point])
    transforms._installed.cache_clear()
    transforms.load_transform.cache_clear()
    try:
        made = run(environment, tmp_path / "page.py")
        env = made["env"].unwrapped
        _, info = env.reset(seed=0)
        action = env.action_space.from_text("SplitInThree(loop=2)")
        assert info["action_mask"][action]  # 240 turns
        after = env.program.apply(env.action_space.transform(action))
        assert "SplitInThree(loop=2)" in map(str, after.steps)
        asked: list[Any] = []

        def evaluate_many(given: list[Any]) -> Iterator[Any]:
            asked.extend(given)
            return iter(given)

        search = SimpleNamespace(
            start=env.program, vocabulary=env.vocabulary, evaluate_many=evaluate_many
        )
        run(agent, tmp_path / "agent.py")["First"]().run(search)
        assert len(asked) == info["action_mask"].sum() - 1  # without STOP
    finally:
        monkeypatch.undo()
        transforms._installed.cache_clear()
        transforms.load_transform.cache_clear()
