"""The learner: sb3-contrib's MaskablePPO made from `TrainArgs`, and its state as plain tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.logger import Logger
from torch import Tensor

from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.baselines.ppo.vector_env import GroupedVecEnv
from tirgym.errors import TargetMismatchError

__all__ = ["is_finite", "make_model", "restore", "snapshot", "spaces_digest"]

_CUDA = "cuda."
"""What the names of states of CUDA generators begin with; the number of the device follows."""


def make_model(args: TrainArgs, env: GroupedVecEnv) -> Any:
    """An untrained MaskablePPO on `env`; seeds torch, NumPy and Python."""
    model = MaskablePPO(
        args.kind.load(),
        env,
        learning_rate=args.learning_rate,
        n_steps=args.rollout // args.envs,
        batch_size=args.batch,
        n_epochs=args.epochs,
        gamma=args.gamma,
        gae_lambda=args.gae_lambda,
        clip_range=args.clip,
        ent_coef=args.entropy,
        vf_coef=args.value,
        max_grad_norm=args.max_grad_norm,
        policy_kwargs=dict(args.kind.arguments),
        seed=args.seed,
        device=args.device,
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def spaces_digest(env: Any) -> str:
    """16 hex digits of the observation and action spaces."""
    text = f"{env.observation_space} {env.action_space}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def snapshot(model: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that the next rollout and update depend on, apart from the environments.

    Weights, optimizer, the generators of torch (those of CUDA too on such a device) and NumPy and the
    counters, at the border between an update and the next rollout, where the rollout buffer holds
    nothing that is needed.
    """
    tensors = {f"policy.{name}": value for name, value in _arrays(model.policy)}
    for number, state in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
    kind, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state())
    tensors |= {f"rng.{name}": state for name, state in _torch_generators(model.device).items()}
    tensors["rng.numpy"] = torch.from_numpy(keys.astype(np.int64))
    facts = {
        "spaces": spaces_digest(model.env),
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "numpy": [kind, int(position), int(has_gauss), float(cached)],
        "starts": [bool(start) for start in model._last_episode_starts],
    }
    return {name: value.detach().contiguous() for name, value in tensors.items()}, facts


def restore(model: Any, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put a `snapshot` into a model that was made with the same arguments.

    Raises TargetMismatchError if its observations or actions were others.
    """
    here = spaces_digest(model.env)
    if facts["spaces"] != here:
        raise TargetMismatchError(
            f"the state was trained on other observations or actions ({facts['spaces']}; here "
            f"{here}), by another version; train anew in another folder"
        )
    groups: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        group, _, rest = name.partition(".")
        groups.setdefault(group, {})[rest] = value
    with torch.no_grad():
        for name, value in _arrays(model.policy):
            value.copy_(groups["policy"][name])
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in groups.get("optimizer", {}).items():
        number, _, rest = name.partition(".")
        state.setdefault(int(number), {})[rest] = value
    optimizer = model.policy.optimizer
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
    kind, position, has_gauss, cached = facts["numpy"]
    keys = groups["rng"]["numpy"].numpy().astype(np.uint32)
    np.random.set_state((kind, keys, position, has_gauss, cached))
    _set_torch_generators(model.device, groups["rng"])
    model.num_timesteps, model._n_updates = facts["steps"], facts["updates"]
    model._last_episode_starts = np.array(facts["starts"], bool)


def is_finite(model: Any) -> bool:
    """Whether every weight is a finite number."""
    return all(bool(torch.isfinite(value).all()) for _, value in _arrays(model.policy))


def _torch_generators(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a model on `device` draws from."""
    states = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        found = torch.cuda.get_rng_state_all()
        states |= {f"{_CUDA}{number}": state for number, state in enumerate(found)}
    return states


def _set_torch_generators(device: torch.device, states: Mapping[str, Tensor]) -> None:
    """Put back what `_torch_generators` answered; devices that there are no states of keep theirs."""
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        for number in range(torch.cuda.device_count()):
            if f"{_CUDA}{number}" in states:
                torch.cuda.set_rng_state(states[f"{_CUDA}{number}"], number)


def _arrays(policy: Any) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, each once whatever modules share it."""
    return [*policy.named_parameters(), *policy.named_buffers()]
