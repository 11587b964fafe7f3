"""`static`: steps/s of the static environment against the plain way; `memory`: what it keeps.

Fresh random episodes of `tirgym/ScheduleStatic-v0` (dict observation, exact mask, static cost), every
state new.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import psutil

from tirgym.benchmarks.plain_way import TensorIR, plain_step
from tirgym.envs.schedule import ScheduleEnv
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import Transform
from tirgym.kernels_suite.registry import kernel_names
from tirgym.spaces.graph import encoder_for

__all__ = [
    "EPISODE_STEPS",
    "KERNELS",
    "PHASES",
    "MemoryReport",
    "StaticReport",
    "memory",
    "static",
    "suite_steps_per_s",
]

KERNELS = ("matmul", "softmax", "conv2d", "layernorm", "attention")
EPISODE_STEPS = 12
_BATCH = 10
"""episodes between two looks at the plain way, so that neither spoils the other's caches much"""
PHASES = ("apply", "walk", "mask", "cost", "encode", "observe")


@dataclass(frozen=True, slots=True)
class StaticReport:
    """Static environment, one process, CPU seconds of one core; means over all steps."""

    kernels: tuple[str, ...]
    actions: int
    episodes: int
    steps: int
    mean_loops: float
    mean_blocks: float
    steps_per_s: float
    """steps / CPU seconds, resets included"""
    steps_per_s_wall: float
    collector_share: float
    """part of those CPU seconds that Python's cyclic garbage collector took"""
    plain_steps_per_s: float
    """1 / mean CPU seconds of apply, trials and structural walk; without observation and cost"""
    plain_states: int
    ratio: float
    """steps_per_s / plain_steps_per_s"""
    suite_kernels: int
    suite_steps_per_s: float
    """the same over random episodes of so many kernels, as many of each"""
    phases_us: dict[str, float]
    """mean CPU µs of one step by phase, from a second pass over other random episodes"""
    snapshot_us: float
    rollback_us: float
    """`set_state`, observation and info included"""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Resident memory over many short episodes of one environment."""

    episodes: int
    warm_mib: float
    """after a third of the episodes"""
    end_mib: float

    @property
    def growth_mib(self) -> float:
        """What the last two thirds added."""
        return self.end_mib - self.warm_mib


@dataclass
class _Played:
    """What random episodes went through."""

    steps: int = 0
    loops: int = 0
    blocks: int = 0
    kept: list[tuple[Program, Transform]] = field(default_factory=list)
    """one random state of each episode, with the transform that was chosen there"""


def _play(
    env: ScheduleEnv,
    rng: np.random.Generator,
    seed: int,
    played: _Played,
    kernel: str | None = None,
) -> None:
    """One random episode, of a random kernel or the named one."""
    _, info = env.reset(seed=seed, options={"kernel": kernel} if kernel else None)
    place = int(rng.integers(EPISODE_STEPS))
    for number in range(EPISODE_STEPS):
        legal = np.flatnonzero(info["action_mask"][:-1])
        if not len(legal):
            break
        before = env.program
        _, _, _, truncated, info = env.step(legal[rng.integers(len(legal))])
        nest = cast(TensorIR, env.program).nest
        played.steps += 1
        played.loops += nest.size
        played.blocks += len(nest.blocks)
        if number == place:
            played.kept.append((before, env.program.steps[-1]))
        if truncated:
            break


@contextmanager
def _collector_clock() -> Iterator[list[float]]:
    """CPU seconds of each garbage collection inside."""
    seconds: list[float] = []
    began = 0.0

    def clock(phase: str, _: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        else:
            seconds.append(time.thread_time() - began)

    gc.callbacks.append(clock)
    try:
        yield seconds
    finally:
        gc.callbacks.remove(clock)


def _phases(env: ScheduleEnv, kernels: Sequence[str], episodes: int) -> dict[str, float]:
    """Mean CPU µs of the parts of a step over fresh random programs."""
    rng = np.random.default_rng(1)
    spent: dict[str, list[float]] = {name: [] for name in PHASES}

    def clocked(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.thread_time()
        answer = call(*arguments)
        spent[name].append((time.thread_time() - began) * 1e6)
        return answer

    cost, form = env.state.reward.cost, env.observation_form  # type: ignore[attr-defined]
    for number in range(episodes):
        env.reset(seed=number, options={"kernel": kernels[number % len(kernels)]})
        program = env.program
        mask = program.legal_mask(env.vocabulary)
        for _ in range(EPISODE_STEPS):
            if not mask.any():
                break
            transform = env.vocabulary[int(rng.choice(np.flatnonzero(mask)))]
            program = clocked("apply", program.apply, transform)
            clocked("walk", getattr, program, "nest")
            mask = clocked("mask", program.legal_mask, env.vocabulary)
            clocked("cost", cost.predict_us, program)
            graph = clocked("encode", encoder_for(program.dialect).encode, program)
            clocked("observe", form.observe, program, graph, env.action_space.mask(mask))
    return {name: round(statistics.fmean(values), 1) for name, values in spent.items()}


def _states_us(env: ScheduleEnv) -> tuple[float, float]:
    """Median µs of a snapshot, and of going back to it."""
    snapshots, rollbacks = [], []
    for _ in range(200):
        began = time.perf_counter()
        state = env.state
        middle = time.perf_counter()
        env.set_state(state)
        snapshots.append((middle - began) * 1e6)
        rollbacks.append((time.perf_counter() - middle) * 1e6)
    return statistics.median(snapshots), statistics.median(rollbacks)


def static(
    episodes: int = 60,
    plain_states: int = 40,
    kernels: Sequence[str] = KERNELS,
    suite: Sequence[str] | None = None,
) -> StaticReport:
    """Play `episodes` random episodes; between batches the plain way runs, on some of their states.

    Set-up (unscheduled programs, imports) is left out; resets count. `suite` are the kernels of the
    whole-suite figure, all of core-v0 by default.
    """
    env = ScheduleEnv(list(kernels), reward="static", max_steps=EPISODE_STEPS + 1)
    rng = np.random.default_rng(0)
    for kernel in kernels:  # set-up: builds the unscheduled programs, imports what is lazy
        env.reset(options={"kernel": kernel})
    _play(env, rng, 0, _Played())
    cpu_s = wall_s = collector_s = 0.0
    played = _Played()
    plain: list[float] = []
    for first in range(0, episodes, _BATCH):
        numbers = range(first, min(first + _BATCH, episodes))
        began, began_wall = time.thread_time(), time.perf_counter()
        with _collector_clock() as collections:
            for number in numbers:
                _play(env, rng, number, played)
        collector_s += sum(collections)
        cpu_s += time.thread_time() - began
        wall_s += time.perf_counter() - began_wall
        share = round(plain_states * (numbers[-1] + 1) / episodes) - len(plain)
        plain += [plain_step(env.vocabulary, *state) for state in played.kept[:share]]
        played.kept.clear()
    snapshot_us, rollback_us = _states_us(env)
    names = tuple(kernel_names()) if suite is None else tuple(suite)
    steps = played.steps
    fast, slow = steps / cpu_s, 1 / statistics.fmean(plain)
    return StaticReport(
        kernels=tuple(kernels),
        actions=int(env.action_space.n),
        episodes=episodes,
        steps=steps,
        mean_loops=round(played.loops / steps, 2),
        mean_blocks=round(played.blocks / steps, 2),
        steps_per_s=round(fast, 1),
        steps_per_s_wall=round(steps / wall_s, 1),
        collector_share=round(collector_s / cpu_s, 3),
        plain_steps_per_s=round(slow, 2),
        plain_states=len(plain),
        ratio=round(fast / slow, 1),
        suite_kernels=len(names),
        suite_steps_per_s=round(suite_steps_per_s(names), 1),
        phases_us=_phases(env, kernels, max(len(kernels), episodes // 3)),
        snapshot_us=round(snapshot_us, 1),
        rollback_us=round(rollback_us, 1),
    )


def suite_steps_per_s(kernels: Sequence[str], episodes: int = 2) -> float:
    """Steps / CPU seconds over `episodes` random episodes of each of `kernels`, resets included.

    Set-up is left out.
    """
    env = ScheduleEnv(list(kernels), reward="static", max_steps=EPISODE_STEPS + 1)
    rng, played = np.random.default_rng(4), _Played()
    spent_s = 0.0
    for kernel in kernels:
        env.reset(options={"kernel": kernel})
        began = time.thread_time()
        for number in range(episodes):
            _play(env, rng, number, played, kernel)
        spent_s += time.thread_time() - began
        played.kept.clear()
    return played.steps / spent_s


def memory(episodes: int = 2000, kernels: Sequence[str] = KERNELS) -> MemoryReport:
    """Play `episodes` episodes of three steps and look at the resident memory."""
    env = ScheduleEnv(list(kernels), shape="tiny", reward="static", max_steps=3)
    rng = np.random.default_rng(2)
    process = psutil.Process()
    warm = 0.0
    for number in range(episodes):
        _play(env, rng, number, _Played())
        if number == episodes // 3:
            gc.collect()
            warm = process.memory_info().rss / 2**20
    gc.collect()
    end = process.memory_info().rss / 2**20
    return MemoryReport(episodes, round(warm, 1), round(end, 1))
