"""Speed of policies: `python -m tirgym.benchmarks.policy_speed --json`.

What a policy takes for one observation, for the observations of 16 environments, and for each sample
of a PPO update (forward, backward and optimizer at 256 samples), on observations of random episodes;
CPU time of one thread, since wall time says little on a busy machine. Aims for ppo-gnn in the Decision
environment: under 5 ms for one observation, under 0.3 ms for a sample of an update.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer

from tirgym.baselines.ppo.extra import require_rl
from tirgym.baselines.ppo.policy_kinds import POLICY_KINDS
from tirgym.benchmarks.command_line import print_rows

__all__ = ["KERNELS", "PolicyReport", "main", "measure"]

KERNELS = ("matmul", "softmax", "conv2d", "layernorm", "attention")
ENVIRONMENTS = ("tirgym/DecisionStatic-v0", "tirgym/ScheduleStatic-v0")


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One policy in one environment; CPU milliseconds, lower quartiles."""

    agent: str
    environment: str
    parameters: int
    nodes: float
    """mean of the observations; 0 where there is no graph"""
    edges: float
    legal_actions: float
    one_ms: float
    """`predict` for one observation"""
    sixteen_ms: float
    """`predict` for 16 observations at once"""
    update_ms: float
    """for each of 256 samples: log-probabilities, value and entropy, their gradients, one step"""


def measure(agent: str, environment: str, samples: int = 256, rounds: int = 12) -> PolicyReport:
    """An untrained policy on `samples` observations of random episodes over all kernels.

    Raises MissingExtraError, and UnknownNameError for an environment that does not exist.
    """
    require_rl("the benchmark of policies")
    import torch
    from sb3_contrib import MaskablePPO

    kind = POLICY_KINDS[agent]
    env = gymnasium.make(environment, kernel=list(KERNELS), observation=kind.observation)
    model = MaskablePPO(kind.load(), env, policy_kwargs=dict(kind.arguments), seed=0, device="cpu")
    policy, shown, masks = model.policy, *_episodes(env, samples)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        one_ms = _milliseconds(partial(_predict, policy, shown, masks, 1), rounds)
        sixteen_ms = _milliseconds(partial(_predict, policy, shown, masks, 16), rounds)
        update_ms = _milliseconds(_update(policy, shown, masks), rounds)
    finally:
        torch.set_num_threads(threads)
    return PolicyReport(
        agent,
        environment,
        parameters=sum(value.numel() for value in policy.parameters()),
        nodes=_mean(shown["node_mask"]) if isinstance(shown, dict) else 0.0,
        edges=_mean(shown["edge_mask"]) if isinstance(shown, dict) else 0.0,
        legal_actions=_mean(masks),
        one_ms=round(one_ms, 3),
        sixteen_ms=round(sixteen_ms, 3),
        update_ms=round(update_ms / samples, 4),
    )


def _mean(marks: Any) -> float:
    """Marks in each row on average."""
    return round(float(marks.sum() / len(marks)), 1)


def _episodes(env: Any, samples: int) -> tuple[Any, Any]:
    """Observations of random steps, stacked, and their masks."""
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    found, masks = [], []
    for _ in range(samples):
        mask = info["action_mask"]
        found.append(observation)
        masks.append(mask > 0)
        observation, _, terminated, truncated, info = env.step(
            int(rng.choice(np.flatnonzero(mask)))
        )
        if terminated or truncated:
            observation, info = env.reset()
    if isinstance(found[0], dict):
        return {name: np.stack([one[name] for one in found]) for name in found[0]}, np.stack(masks)
    return np.stack(found), np.stack(masks)


def _predict(policy: Any, shown: Any, masks: Any, number: int) -> None:
    """Actions for the first `number` observations."""
    if isinstance(shown, dict):
        shown = {name: value[:number] for name, value in shown.items()}
    else:
        shown = shown[:number]
    policy.predict(shown, action_masks=masks[:number])


def _update(policy: Any, shown: Any, masks: Any) -> Callable[[], None]:
    """One step of the optimizer on all observations."""
    observations, _ = policy.obs_to_tensor(shown)
    actions = policy.get_distribution(observations, action_masks=masks).get_actions()

    def update() -> None:
        values, log_probabilities, entropy = policy.evaluate_actions(observations, actions, masks)
        loss = values.mean() - log_probabilities.mean() - entropy.mean()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()

    return update


def _milliseconds(act: Callable[[], Any], rounds: int) -> float:
    """CPU time of one call, lower quartile; the first call does not count."""
    act()
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        act()
        times.append((time.thread_time() - began) * 1e3)
    return float(np.percentile(times, 25))


def run(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    samples: Annotated[int, typer.Option(min=16, help="Observations in an update.")] = 256,
) -> None:
    """Measure and print."""
    reports = [
        measure(agent, environment, samples)
        for environment in ENVIRONMENTS
        for agent in ("ppo-gnn", "ppo-mlp")
    ]
    print_rows("policy_speed", reports, as_json)


def main() -> None:
    """Entry point."""
    typer.run(run)


if __name__ == "__main__":
    main()
