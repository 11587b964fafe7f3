"""A server that is killed in the middle of an episode costs its advice, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import pytest

import tirgym  # noqa: F401  (registers the environments)
from tirgym.envs.decision import DecisionEnv
from tirgym.harness.decisions import DecisionAgent
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.serving.compile_guard import compile_guard
from tirgym.serving.latency import serving
from tirgym.serving.remote import RemoteAgent
from tirgym.serving.stdio_agent import StdioAgent

KERNEL = "tirgym://core-v0/softmax?m=16&n=32&dtype=float32"
BUDGET_S = 60.0
BEFORE = 3
"""Answers before the kill."""


@contextmanager
def over_http() -> Iterator[tuple[DecisionAgent, subprocess.Popen[bytes]]]:
    with serving("--agent", "random") as (url, process), RemoteAgent(url, BUDGET_S) as agent:
        yield agent, process


@contextmanager
def over_stdio() -> Iterator[tuple[DecisionAgent, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "tirgym", "serve", "--stdio", "--agent", "random"]
    with StdioAgent(command, BUDGET_S, restarts=0) as agent:
        yield agent, agent._pipe.process


@pytest.mark.parametrize("connect", [over_http, over_stdio])
def test_the_episode_goes_on_with_static_choices(connect: Any) -> None:
    env = gymnasium.make("tirgym/DecisionStatic-v0", kernel=KERNEL).unwrapped
    assert isinstance(env, DecisionEnv)
    env.reset(seed=0)
    with connect() as (agent, process):
        guard = compile_guard(agent, budget_ms=1000 * BUDGET_S, retry_s=600.0)
        steps, over, advised = 0, False, env.walk
        while not over:
            if steps == BEFORE:
                advised = env.walk
                process.kill()  # SIGKILL
                process.wait()
            _, _, terminated, truncated, info = env.decide(guard)
            steps, over = steps + 1, terminated or truncated
    report = guard.report
    assert terminated
    assert info["speedup"] > 0
    assert report.asked == steps > BEFORE + 3
    assert report.taken == BEFORE
    assert (report.raised, report.resting) == (3, steps - BEFORE - 3)
    done = env.walk.program
    assert done.ir_key == advised.finish().program.ir_key  # static choices from there on
    again = TensorIRProgram.start(done.workload, done.target)
    for step in done.steps:
        again = again.apply(parse_transform(str(step)))
    assert again.ir_key == done.ir_key
    env.close()
