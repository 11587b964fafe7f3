"""`evaluate`: a policy plays each workload once, greedily."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.baselines.ppo.env_spec import EnvSpec

__all__ = ["GreedyPlayer", "Played", "Scores", "evaluate"]


@dataclass(frozen=True, slots=True)
class Played:
    """One greedy episode."""

    workload: str
    """URI"""
    episode_return: float
    speedup: float
    """as the reward paid it: predicted, or measured"""
    verified: bool
    """the speedup was measured, and the final program passed the gate in full"""
    steps: int
    invalid: int


@dataclass(frozen=True, slots=True)
class Scores:
    """One greedy episode of each workload."""

    played: tuple[Played, ...]

    @property
    def geomean(self) -> float:
        """Geometric mean of the speedups."""
        return math.exp(float(np.mean([math.log(max(p.speedup, 1e-9)) for p in self.played])))

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean([p.episode_return for p in self.played]))

    @property
    def verified_geomean(self) -> float | None:
        """Geometric mean of the speedups, if each was verified."""
        return self.geomean if all(p.verified for p in self.played) else None


class GreedyPlayer:
    """Keeps the environment of `spec` between evaluations."""

    def __init__(self, spec: EnvSpec) -> None:
        self._workloads = [workload for shapes in spec.choices() for workload in shapes]
        self._env = spec.make()

    def play(self, policy: Any) -> Scores:
        """One greedy episode of each workload; draws no random numbers."""
        return Scores(tuple(self._episode(policy, workload) for workload in self._workloads))

    def close(self) -> None:
        """End the environment and its evaluator."""
        self._env.close()

    def _episode(self, policy: Any, workload: Any) -> Played:
        observation, info = self._env.reset(options={"kernel": workload})
        invalid, over = 0, False
        while not over:
            mask = info["action_mask"].astype(bool)
            action, _ = policy.predict(observation, action_masks=mask, deterministic=True)
            observation, _, terminated, truncated, info = self._env.step(action)
            invalid += int(not info["legal"])
            over = terminated or truncated
        return Played(
            workload.uri,
            float(info["episode_return"]),
            float(info["speedup"]),
            bool(info["verified"]),
            int(info["steps"]),
            invalid,
        )


def evaluate(policy: Any, spec: EnvSpec) -> Scores:
    """One greedy episode of each workload of `spec` with an sb3-contrib policy or model."""
    player = GreedyPlayer(spec)
    try:
        return player.play(policy)
    finally:
        player.close()
