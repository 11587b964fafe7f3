"""Masked PPO with TorchRL's own parts: python examples/ppo_torchrl.py [STEPS]

Needs pip install torchrl beside tirgym. Plays the Decision environment on the "features" observation.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import tirgym  # noqa: F401 - registers the environments

KERNELS = ["add", "row_sum", "matmul"]
FRAMES, EPOCHS, BATCH = 512, 4, 128


class MaskShown(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the mask of `info` into the observation, where TorchRL looks for it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        mask = Box(0, 1, (int(env.action_space.n),), np.int8)
        self.observation_space = Dict({"features": env.observation_space, "legal": mask})

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        features, info = self.env.reset(**options)
        return {"features": features, "legal": info["action_mask"]}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        features, reward, terminated, truncated, info = self.env.step(action)
        return (
            {"features": features, "legal": info["action_mask"]},
            reward,
            terminated,
            truncated,
            info,
        )


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, outputs))


class Actor(nn.Module):
    """Logits of the options, and which of them there are."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.logits = network(inputs, actions)

    def forward(
        self, features: torch.Tensor, legal: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.logits(features), legal.bool()


def main(steps: int) -> None:
    """Train, and print one line for each update."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    played = gym.make("tirgym/DecisionStatic-v0", kernel=KERNELS, observation="features")
    inputs, actions = played.observation_space.shape[0], int(played.action_space.n)
    env = TransformedEnv(
        GymWrapper(MaskShown(played), categorical_action_encoding=True), RewardSum()
    )
    env.set_seed(0)
    looks = TensorDictModule(Actor(inputs, actions), ["features", "legal"], ["logits", "mask"])
    actor = ProbabilisticActor(
        looks,
        in_keys=["logits", "mask"],
        spec=env.action_spec,
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    )
    critic = ValueOperator(network(inputs, 1), in_keys=["features"])
    advantage = GAE(gamma=1.0, lmbda=0.95, value_network=critic, average_gae=True)
    loss = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.01, critic_coeff=0.5)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    collector = Collector(
        env,
        actor,
        frames_per_batch=FRAMES,
        total_frames=max(steps, FRAMES),
        auto_register_policy_transforms=False,
    )
    done_steps = 0
    for batch in collector:
        done_steps += batch.numel()
        for _ in range(EPOCHS):
            with torch.no_grad():
                advantage(batch)
            for part in torch.randperm(FRAMES).split(BATCH):
                losses = loss(batch[part])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
        ended = batch["next", "done"].squeeze(-1)
        returns = batch["next", "episode_reward"].squeeze(-1)[ended]
        print(
            f"step {done_steps:6}  predicted speedup {returns.mean().exp():6.2f}x  loss {total:.3f}"
        )
    collector.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
