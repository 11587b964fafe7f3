"""The measured environment with the real evaluator, and its replay from the store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
from small import SMALL

import tirgym  # noqa: F401  registers the ids
from tirgym.envs.schedule import ScheduleEnv
from tirgym.errors import EvaluationError
from tirgym.harness.store import Store

STEPS = ("Split(loop=1, factor=8)", "Reorder(loop=2)", "Vectorize(loop=3)", "STOP")


def play(env: ScheduleEnv) -> list[tuple[float, str, float]]:
    env.reset(seed=0)
    played = []
    for text in STEPS:
        _, reward, _, _, info = env.apply(text)
        played.append((reward, info["status"], info["speedup"]))
    return played


def test_a_measured_episode_is_verified_and_replays_from_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    env = gymnasium.make(
        "tirgym/Schedule-v0",
        kernel="matmul",
        shape={"m": 64, "n": 64, "k": 64},
        store=str(path),
        max_steps=8,
    )
    schedule = env.unwrapped
    assert isinstance(schedule, ScheduleEnv)
    try:
        measured = play(schedule)
        trace = schedule.trace()
    finally:
        env.close()
    assert {status for _, status, _ in measured} <= {"passed", "noisy"}
    assert trace.result is not None
    if trace.result.status == "passed":
        assert trace.result.speedup is not None
        assert trace.result.speedup > 1.5
        assert sum(reward for reward, _, _ in measured) == pytest.approx(
            np.log(measured[-1][2]), abs=1e-9
        )
    replayed = ScheduleEnv("matmul", {"m": 64, "n": 64, "k": 64}, reward="replay", store=str(path))
    first, second = play(replayed), play(replayed)
    assert first == second
    for (_, was, _), (_, now, _) in zip(measured, first, strict=True):
        assert now == was or was == "noisy"


def test_what_was_never_measured_pays_nothing_in_replay(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Store(path).close()
    env = ScheduleEnv(SMALL["matmul"], reward="replay", store=str(path), arch="skylake-avx512")
    env.reset(seed=0)
    _, reward, terminated, _, info = env.apply("Split(loop=0, factor=2)")
    assert (reward, terminated, info["status"]) == (0.0, False, "incomplete")
    assert "holds nothing for matmul" in info["message"]


def test_after_every_worker_was_killed_the_next_reset_works() -> None:
    others = set(psutil.Process().children(recursive=True))
    env = ScheduleEnv(SMALL["matmul"], reward="measured", store=":memory:")
    try:
        env.reset(seed=0)
        assert env.apply("Split(loop=0, factor=2)")[4]["status"] in ("passed", "noisy")
        for child in set(psutil.Process().children(recursive=True)) - others:
            child.kill()
        with suppress(EvaluationError):  # all of its processes are gone at once
            env.apply("Split(loop=2, factor=2)")
        env.reset(seed=0)
        assert env.apply("Split(loop=1, factor=2)")[4]["status"] in ("passed", "noisy")
    finally:
        env.close()
