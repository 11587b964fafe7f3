"""Policies for tests: untrained ones as checkpoints, and observations to show them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

POLICIES = {"ppo-gnn": "dict", "ppo-gnn-shuffled": "dict", "ppo-mlp": "features"}
"""Agent → observation of its policy."""

Observations = dict[str, np.ndarray[Any, Any]]


def untrained(
    path: Path,
    agent: str = "ppo-gnn",
    environment: str = "tirgym/Decision-v0",
    backend: str = "llvm",
    seed: int = 0,
    candidate_costs: bool = False,
) -> str:
    """Write a checkpoint of random weights that has opinions; returns its path."""
    import torch

    from tirgym.baselines.ppo.checkpoint import save_policy
    from tirgym.baselines.ppo.header import CheckpointHeader

    policy = make_policy(agent, environment, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in policy.parameters():  # the last layers of new policies are next to nothing
            value += 0.1 * torch.randn(value.shape, generator=generator)
    facts = (agent, environment, "core-v0", "train", ("matmul",), 0, "static", seed, backend)
    header = CheckpointHeader(*facts, candidate_costs=candidate_costs)
    save_policy(policy, path, header)
    return str(path)


def make_policy(agent: str, environment: str, seed: int = 0, **arguments: Any) -> Any:
    """A new policy for the spaces of an environment."""
    import torch
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

    from tirgym.baselines.ppo.policy import GraphPolicy

    kind: Callable[..., Any] = GraphPolicy
    if agent == "ppo-mlp":
        kind = MaskableActorCriticPolicy
    elif agent == "ppo-gnn-shuffled":
        arguments["edges"] = "shuffled"
    env = gymnasium.make(environment, observation=POLICIES[agent])
    torch.manual_seed(seed)
    return kind(env.observation_space, env.action_space, lambda _: 1e-3, **arguments)


@lru_cache
def observed(environment: str, kernels: tuple[str, ...], number: int) -> Observations:
    """`number` observations of each kernel's tiny shape on random episodes, one after the other."""
    found: list[Observations] = []
    rng = np.random.default_rng(0)
    for kernel in kernels:
        env = gymnasium.make(environment, kernel=kernel, shape="tiny")
        observation, info = env.reset(seed=0)
        for _ in range(number):
            found.append(observation)
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            observation, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                observation, info = env.reset()
    return {name: np.stack([one[name] for one in found]) for name in found[0]}
