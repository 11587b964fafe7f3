"""How long a step of `tirgym/Triton-v0` takes: with a warm cache, and in a state seen before.

Run: python -m tirgym.benchmarks.triton_steps --json

A random walk of legal actions fills the cache of compiled kernels, verdicts and predictions, in which
the compiler has by far the most work. The same walk is then played by a new environment that has
nothing in memory (warm), and by that environment again (cached). Steps are those with reward="static".
Times are CPU milliseconds of this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["StepRow", "step_times"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One kernel with one form of observation."""

    workload: str
    arch: str
    observation: str
    steps: int
    actions: int
    legal: int
    """actions that the mask allows at the start"""
    warm_ms: float
    """median of a step whose results are on disk"""
    warm_max_ms: float
    cached_ms: float
    """median of a step to a state that this environment has seen"""
    cached_max_ms: float


def step_times(
    kernels: Sequence[str], arch: str = "sm_90", steps: int = 8, observation: str = "dict"
) -> list[StepRow]:
    """Rows of `kernels`, names in triton-v0 or URIs."""
    return [_row(kernel, arch, steps, observation) for kernel in kernels]


def _row(kernel: str, arch: str, steps: int, observation: str) -> StepRow:
    options = {"arch": arch, "observation": observation, "max_steps": 10**6}
    first = _environment(kernel, **options)
    walk = _walk(first, steps)
    first.close()
    _forget()
    env = _environment(kernel, **options)
    _, info = env.reset(seed=0)
    warm = _played(env, walk)
    env.reset(seed=0)
    cached = _played(env, walk)
    env.close()
    return StepRow(
        workload=info["workload"],
        arch=arch,
        observation=observation,
        steps=len(walk),
        actions=int(env.action_space.n),
        legal=int(info["action_mask"].sum()),
        warm_ms=round(statistics.median(warm), 2),
        warm_max_ms=round(max(warm), 2),
        cached_ms=round(statistics.median(cached), 2),
        cached_max_ms=round(max(cached), 2),
    )


def _environment(kernel: str, **options: Any) -> Any:
    from tirgym.envs.triton import TritonEnv

    return TritonEnv(kernel, **options)


def _walk(env: Any, steps: int) -> list[int]:
    """Actions that the compiler accepted one after the other."""
    _, info = env.reset(seed=0)
    rng, walk = np.random.default_rng(0), list[int]()
    for _ in range(8 * steps):
        if len(walk) == steps:
            break
        action = int(rng.choice(np.flatnonzero(info["action_mask"][:-1])))
        _, _, terminated, _, info = env.step(action)
        if terminated:
            raise SystemExit(f"{env.program} is wrong after {env.action_space.to_text(action)}")
        if info["legal"]:
            walk.append(action)
    return walk


def _played(env: Any, walk: Sequence[int]) -> list[float]:
    times = []
    for action in walk:
        started = time.process_time()
        env.step(action)
        times.append((time.process_time() - started) * 1e3)
    return times


def _forget() -> None:
    """Empty what is kept in memory between environments."""
    from tirgym.harness.triton.program import legal_actions
    from tirgym.spaces.graph import encoder_for

    legal_actions.cache_clear()
    encoder_for.cache_clear()


def main(arguments: Sequence[str]) -> int:
    """Print one row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=["softmax", "matmul", "attention"])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--observation", default="dict")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = step_times(options.kernels, options.arch, options.steps, options.observation)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    for row in rows:
        print(
            f"{row.workload}: warm {row.warm_ms} ms (at most {row.warm_max_ms}), "
            f"cached {row.cached_ms} ms (at most {row.cached_max_ms})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
