"""`imitate`: a policy of sb3-contrib learns to choose as demonstrations do, before it plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tirgym.baselines.ppo.demonstrations import Demonstrations, State

__all__ = ["Imitated", "imitate"]

BATCH = 64
"""States of a minibatch."""
LEARNING_RATE = 1e-3
"""Of Adam."""
VALUE = 0.1
"""Weight of the squared error of the value beside the cross-entropy."""


@dataclass(frozen=True, slots=True)
class Imitated:
    """The last pass over the demonstrations."""

    cross_entropy: float
    """per state, weighted, in nats"""
    agreement: float
    """weighted share of states whose likeliest action is the demonstrations' favourite"""


def imitate(model: Any, shown: Demonstrations, epochs: int, seed: int, *, values: bool) -> Imitated:
    """Fit `model.policy` by `epochs` passes in an order drawn from `seed`.

    Actions by cross-entropy with the demonstrations' weights, and if asked for `values` by the log
    speedup that they end with. That is what is still to be paid from every state where the reward pays
    at the end, and there alone: one that pays each step has paid a part of it before. With an optimizer
    of its own: that of `model` starts fresh.
    """
    policy, rng = model.policy, np.random.default_rng([seed, 0x1317])
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    policy.set_training_mode(True)
    loss = right = 0.0
    for _ in range(epochs):
        loss = right = 0.0
        order = rng.permutation(len(shown.states))
        for first in range(0, len(order), BATCH):
            batch = [shown.states[i] for i in order[first : first + BATCH]]
            entropy, agreed, error = _judge(policy, batch)
            optimizer.zero_grad()
            (entropy / len(batch) + (VALUE if values else 0.0) * error).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            loss += float(entropy.detach())
            right += agreed
    total = sum(state.weight for state in shown.states)
    policy.set_training_mode(False)
    return Imitated(loss / total, right / total)


def _judge(policy: Any, batch: Sequence[State]) -> tuple[Tensor, float, Tensor]:
    """Summed weighted cross-entropy, summed weight of agreement, mean squared error of the value."""
    masks = np.stack([state.mask for state in batch])
    observations, _ = policy.obs_to_tensor(_stacked([state.observation for state in batch]))
    wanted = torch.from_numpy(np.stack([state.wanted for state in batch])).to(policy.device)
    features = policy.extract_features(observations)
    latent, critic = policy.mlp_extractor(features)
    distribution = policy._get_action_dist_from_latent(latent)
    distribution.apply_masking(masks)
    log_probabilities = distribution.distribution.logits
    entropy = -(wanted * log_probabilities.clamp(min=-50)).sum()
    agreed = (log_probabilities.argmax(dim=1) == wanted.argmax(dim=1)) * wanted.sum(dim=1)
    targets = torch.tensor([state.value for state in batch], device=policy.device)
    error = (policy.value_net(critic)[:, 0] - targets).square().mean()
    return entropy, float(agreed.sum()), error


def _stacked(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {name: np.stack([o[name] for o in observations]) for name in observations[0]}
    return np.stack(observations)
