"""A trained policy as one file: safetensors with a JSON header, never code.

    save_policy(model.policy, "policy.safetensors", CheckpointHeader(agent="ppo-gnn", …))
    policy = load_policy("policy.safetensors")

What the policy looks at and may do is hashed into the header: a checkpoint is refused wherever either
differs, with one line that says what to do.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tirgym import __version__
from tirgym.baselines.ppo.extra import require_rl
from tirgym.baselines.ppo.games import Game, game_of, vocabulary_name
from tirgym.baselines.ppo.header import CheckpointHeader, actions_digest, layout_digest
from tirgym.errors import DamagedFileError, InvalidValueError, TargetMismatchError, UsageError
from tirgym.harness.whole_file import write_whole

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "CheckpointHeader",
    "game_for",
    "load_policy",
    "read_header",
    "save_policy",
    "shipped_checkpoint",
]

_KEY = "tirgym-policy"
"""Metadata entry that holds the header."""
_WHAT = "policy checkpoint"


def save_policy(policy: Any, path: str | os.PathLike[str], header: CheckpointHeader) -> None:
    """Write the weights of a `GraphPolicy` or an MlpPolicy, whole or not at all.

    The same weights and header make the same bytes. Raises InvalidValueError for a policy whose
    action table has no name, or whose spaces are not those of `header.environment`.
    """
    from safetensors.torch import save

    weights = _weights(policy)
    header = replace(
        header,
        observation=_form(policy),
        vocabulary=vocabulary_name(policy.action_space, header.backend),
        network=_network(policy),
        layout=layout_digest(policy.observation_space),
        actions=actions_digest(policy.action_space),
        weights=_digest_of(weights),
        version=__version__,
    )
    game = game_for(header)
    if (header.layout, header.actions) != (
        layout_digest(game.observations),
        actions_digest(game.actions),
    ):
        accepted = f"one that was trained in {header.environment} as it is made by default"
        raise InvalidValueError("policy", header.agent, accepted)
    write_whole(path, save(weights, metadata={_KEY: header.to_json()}))


def read_header(path: str | os.PathLike[str]) -> CheckpointHeader:
    """What a checkpoint was trained on; raises as `load_policy` does for a file that is none."""
    return _read(path)[0]


def load_policy(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """The policy of a checkpoint, for prediction: `policy.predict(observation, action_masks=mask)`.

    Raises DamagedFileError for a file that is no checkpoint, or a damaged one, TargetMismatchError
    for one from another version, observation or action table, and MissingExtraError.
    """
    import torch

    header, weights = _read(path)
    game = game_for(header)
    _require_fit(str(path), header, game)
    try:
        with torch.random.fork_rng(devices=[]):  # the caller's draws stay as they are
            policy = _policy_of(header, game)
    except (AttributeError, KeyError, TypeError) as error:
        raise DamagedFileError(str(path), _WHAT, f"{error}; {_remedy(header)}") from None
    made = dict(policy.named_parameters())
    shapes = {name: value.shape for name, value in made.items()}
    if shapes != {name: value.shape for name, value in weights.items()}:
        raise DamagedFileError(str(path), _WHAT, f"weights of another network; {_remedy(header)}")
    with torch.no_grad():
        for name, value in made.items():
            value.copy_(weights[name])
    policy.set_training_mode(False)
    return policy.to(device)


def game_for(header: CheckpointHeader) -> Game:
    """The game that a policy plays; raises UnknownNameError for an environment without one."""
    return game_of(
        header.environment,
        header.observation,
        header.backend,
        header.vocabulary,
        header.candidate_costs,
        header.max_steps,
    )


def shipped_checkpoint(agent: str) -> Path:
    """The checkpoint of `agent` that comes with this package; raises UsageError for none."""
    path = Path(str(files("tirgym") / "data" / f"{agent}.safetensors"))
    if not path.is_file():
        raise UsageError(
            f"no checkpoint of agent {agent} comes with this version; train one (tirgym train "
            f"--agent {agent} --out runs/{agent}) and name it (--checkpoint "
            f"runs/{agent}/policy.safetensors)"
        )
    return path


def _remedy(header: CheckpointHeader) -> str:
    return f"train one here: tirgym train --agent {header.agent} --env {header.environment}"


def _require_fit(path: str, header: CheckpointHeader, game: Game) -> None:
    """Raise TargetMismatchError unless the policy sees and does here what it saw and did there."""
    for what, here, there in (
        ("version of tirgym", _release(__version__), _release(header.version)),
        ("action table (vocabulary)", actions_digest(game.actions), header.actions),
        ("observation", layout_digest(game.observations), header.layout),
    ):
        if here != there:
            raise TargetMismatchError(
                f"{path} was trained with another {what} ({there}; here {here}); {_remedy(header)}"
            )


def _release(version: str) -> str:
    """Major and minor number: patch releases keep observations and actions."""
    return ".".join(version.split(".")[:2])


def _form(policy: Any) -> str:
    """Name of the form of observation that a policy reads."""
    return "dict" if hasattr(policy.observation_space, "spaces") else "features"


def _network(policy: Any) -> dict[str, Any]:
    """Arguments that make the network of a policy again, as JSON values."""
    network: Mapping[str, Any] | None = getattr(policy, "network", None)
    if network is not None:
        return dict(network)
    return {"net_arch": policy.net_arch, "activation": policy.activation_fn.__name__}


def _policy_of(header: CheckpointHeader, game: Game) -> Any:
    """An untrained policy with the network of `header`."""
    require_rl(f"agent {header.agent}")
    network = dict(header.network)
    if header.observation == "dict":
        from tirgym.baselines.ppo.policy import GraphPolicy

        return GraphPolicy(game.observations, game.actions, lambda _: 0.0, **network)
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
    from torch import nn

    network["activation_fn"] = getattr(nn, network.pop("activation"))
    return MaskableActorCriticPolicy(game.observations, game.actions, lambda _: 0.0, **network)


def _weights(policy: Any) -> dict[str, Tensor]:
    """Every parameter once, on the CPU."""
    return {name: value.detach().cpu().contiguous() for name, value in policy.named_parameters()}


def _digest_of(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(name.encode() + str(tuple(value.shape)).encode() + value.numpy().tobytes())
    return digest.hexdigest()[:16]


def _read(path: str | os.PathLike[str]) -> tuple[CheckpointHeader, dict[str, Tensor]]:
    """Header and weights of a file, which belong together."""
    require_rl("a policy checkpoint")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if text is None:
            raise ValueError("it holds arrays, but no policy of tirgym")
        header = CheckpointHeader.from_json(text)
        if header.weights != _digest_of(weights):
            raise ValueError("its weights were changed")
    except FileNotFoundError:
        problem = "there is no such file; `tirgym train --out FOLDER` writes one"
        raise DamagedFileError(str(path), _WHAT, problem) from None
    except (SafetensorError, OSError, ValueError) as error:
        problem = f"{error}; `tirgym train --out FOLDER` writes one"
        raise DamagedFileError(str(path), _WHAT, problem) from None
    return header, weights
