"""Masked PPO in one file of plain torch, in the style of CleanRL: python examples/ppo_single_file.py

Needs torch and nothing else beside tirgym. `--steps 2000 --kernels matmul,softmax` and every other
field of `Args` are options. Plays the Decision environment on the flat "features" observation.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import tirgym  # noqa: F401 - registers the environments


@dataclass
class Args:
    """Options of the command line."""

    kernels: str = "add,row_sum,matmul"
    steps: int = 50_000
    envs: int = 8
    rollout: int = 64
    """steps of each environment between updates"""
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    gamma: float = 1.0
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    max_grad_norm: float = 0.5
    width: int = 128
    seed: int = 0


class Agent(nn.Module):
    """Two small networks: logits of the options, and the value of the state."""

    def __init__(self, observations: int, actions: int, width: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(observations, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, actions),
        )  # fmt: skip
        self.critic = nn.Sequential(
            nn.Linear(observations, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 1),
        )  # fmt: skip
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)

    def policy(self, observations: torch.Tensor, masks: torch.Tensor) -> Categorical:
        """Options that there are not get no probability."""
        return Categorical(logits=self.actor(observations).masked_fill(~masks, -1e8))

    def value(self, observations: torch.Tensor) -> torch.Tensor:
        """(n,)"""
        return self.critic(observations).squeeze(-1)


def main(args: Args) -> None:
    """Train, and print one line for each update."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    kernels = args.kernels.split(",")
    envs = [
        gym.make("tirgym/DecisionStatic-v0", kernel=kernels, observation="features")
        for _ in range(args.envs)
    ]
    n_actions, width = int(envs[0].action_space.n), envs[0].observation_space.shape[0]
    agent = Agent(width, n_actions, args.width)
    optimizer = torch.optim.Adam(agent.parameters(), args.learning_rate, eps=1e-5)

    size = (args.rollout, args.envs)
    observations, masks = torch.zeros(*size, width), torch.zeros(*size, n_actions).bool()
    actions, logprobs = torch.zeros(size).long(), torch.zeros(size)
    rewards, values, ends = torch.zeros(size), torch.zeros(size), torch.zeros(size)

    starts = [env.reset(seed=args.seed + number) for number, env in enumerate(envs)]
    seen = torch.from_numpy(np.stack([observation for observation, _ in starts]))
    legal = torch.from_numpy(np.stack([info["action_mask"] for _, info in starts])).bool()
    began, speedups = time.monotonic(), []
    for update in range(1, max(1, args.steps // (args.rollout * args.envs)) + 1):
        for t in range(args.rollout):
            observations[t], masks[t] = seen, legal
            with torch.no_grad():
                policy = agent.policy(seen, legal)
                actions[t] = policy.sample()
                logprobs[t], values[t] = policy.log_prob(actions[t]), agent.value(seen)
            for number, env in enumerate(envs):
                observation, reward, terminated, truncated, info = env.step(int(actions[t, number]))
                rewards[t, number], ends[t, number] = float(reward), float(terminated or truncated)
                if terminated or truncated:
                    speedups.append(info["speedup"])
                    observation, info = env.reset()
                seen[number] = torch.from_numpy(observation)
                legal[number] = torch.from_numpy(info["action_mask"]).bool()

        # Generalised advantages. Episodes end when all is decided, long before a time limit.
        advantages, last = torch.zeros(size), torch.zeros(args.envs)
        with torch.no_grad():
            following = agent.value(seen)
        for t in reversed(range(args.rollout)):
            alive = 1 - ends[t]
            delta = rewards[t] + args.gamma * following * alive - values[t]
            last = delta + args.gamma * args.gae_lambda * alive * last
            advantages[t], following = last, values[t]
        returns = advantages + values

        flat = {
            "observations": observations.flatten(0, 1), "masks": masks.flatten(0, 1),
            "actions": actions.flatten(), "logprobs": logprobs.flatten(),
            "advantages": advantages.flatten(), "returns": returns.flatten(),
        }  # fmt: skip
        for _ in range(args.epochs):
            for part in torch.randperm(args.rollout * args.envs).chunk(args.minibatches):
                batch = {name: column[part] for name, column in flat.items()}
                policy = agent.policy(batch["observations"], batch["masks"])
                ratio = (policy.log_prob(batch["actions"]) - batch["logprobs"]).exp()
                advantage = batch["advantages"]
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
                policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
                value_loss = (agent.value(batch["observations"]) - batch["returns"]).square().mean()
                entropy = policy.entropy().mean()
                loss = policy_loss - args.entropy * entropy + args.value * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        steps = update * args.rollout * args.envs
        geomean = np.exp(np.mean(np.log(speedups[-100:]))) if speedups else 1.0
        print(
            f"step {steps:6}  predicted speedup {geomean:6.2f}x  value loss {value_loss:.3f}  "
            f"entropy {entropy:.3f}  {steps / (time.monotonic() - began):.0f} steps/s"
        )
    for env in envs:
        env.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Args):
        name, default = f"--{field.name.replace('_', '-')}", field.default
        parser.add_argument(name, type=type(default), default=default)
    main(Args(**vars(parser.parse_args())))
