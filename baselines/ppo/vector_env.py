"""`GroupedVecEnv`: many environments over few processes, as a Stable-Baselines3 `VecEnv`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from tirgym.baselines.ppo.env_group import Batch, EnvGroup, Group, Observations
from tirgym.baselines.ppo.env_spec import EnvSpec
from tirgym.baselines.ppo.remote_group import RemoteGroup
from tirgym.errors import InvalidValueError

__all__ = ["GroupedVecEnv", "default_workers"]


def default_workers(envs: int) -> int:
    """Processes for `envs` environments: one a core, none (this process) for a single one."""
    return 0 if envs == 1 else min(envs, len(os.sched_getaffinity(0)))


class GroupedVecEnv(VecEnv):  # type: ignore[misc]
    """`envs` environments of `spec` over `workers` processes; 0 steps them all in this one.

    Several environments in one process share a message for each step. Masks travel with the
    observations, so that `env_method("action_masks")` costs nothing. Which process an environment
    runs in does not matter: numbers, and with them draws, are those of the environments.
    """

    def __init__(self, spec: EnvSpec, envs: int, workers: int | None = None) -> None:
        if envs < 1:
            raise InvalidValueError("envs", envs, "a whole number of at least 1")
        workers = default_workers(envs) if workers is None else min(workers, envs)
        self.busy_s = 0.0
        """wall time between the beginning of steps and their answers"""
        self._began = 0.0
        self.groups: list[Group] = []
        try:
            make: Callable[..., Group] = RemoteGroup if workers else EnvGroup
            for part in np.array_split(np.arange(envs), max(1, workers)):
                self.groups.append(make(spec, part.tolist()))
            example = spec.make()  # while the processes start
            require_stackable(spec.observation, example.observation_space)
        except BaseException:
            self.close()
            raise
        observation_space, action_space = example.observation_space, example.action_space
        example.close()
        self._masks: NDArray[np.bool_] = np.ones((envs, int(action_space.n)), np.bool_)
        super().__init__(envs, observation_space, action_space)

    # -- what a learner calls ---------------------------------------------------------------

    def reset(self) -> Observations:
        """Start an episode everywhere."""
        return self._joined(self._ask("reset")).observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Begin a step of all groups."""
        self._began = time.perf_counter()
        start = 0
        for group in self.groups:
            part = actions[start : start + group.size]
            group.send("step", [int(action) for action in part])
            start += group.size

    def step_wait(
        self,
    ) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations, rewards, ends of episodes and infos (see `Batch`)."""
        batch = self._joined(self._receive())
        self.busy_s += time.perf_counter() - self._began
        return batch.observations, batch.rewards, batch.dones, batch.infos

    def close(self) -> None:
        """End all environments and processes."""
        groups, self.groups = self.groups, []
        for group in groups:
            group.close()

    # -- resuming ---------------------------------------------------------------------------

    def state(self) -> list[dict[str, Any]]:
        """The state of each environment, plain JSON data."""
        return [state for states in self._ask("state") for state in states]

    def restore(self, states: Sequence[Mapping[str, Any]]) -> Observations:
        """Go on from the `state` of as many environments; the observations to act on next."""
        if len(states) != self.num_envs:
            raise InvalidValueError("states", len(states), f"those of {self.num_envs} environments")
        start = 0
        for group in self.groups:
            group.send("restore", states[start : start + group.size])
            start += group.size
        return self._joined(self._receive()).observations

    # -- the rest of VecEnv -----------------------------------------------------------------

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """`action_masks`, which is what maskable learners ask for; raises AttributeError."""
        if method_name != "action_masks":
            raise AttributeError(f"{type(self).__name__} answers action_masks, not {method_name}")
        return [self._masks[index] for index in self._get_indices(indices)]

    def has_attr(self, attr_name: str) -> bool:
        """Whether `env_method` or `get_attr` answers."""
        return attr_name in ("action_masks", "render_mode")

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """`render_mode`, None; raises AttributeError for what stays in the processes."""
        if attr_name != "render_mode":
            raise AttributeError(f"{attr_name} stays in the processes of {type(self).__name__}")
        return [None for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises AttributeError: environments are what their spec says."""
        raise AttributeError(f"{attr_name}: give it to EnvSpec")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """False, but that returns and lengths are reported as by `Monitor`."""
        monitored = wrapper_class.__name__ == "Monitor"
        return [monitored for _ in self._get_indices(indices)]

    def _ask(self, request: str) -> list[Any]:
        for group in self.groups:
            group.send(request)
        return self._receive()

    def _receive(self) -> list[Any]:
        return [group.receive() for group in self.groups]

    def _joined(self, batches: Sequence[Batch]) -> Batch:
        """One batch of all groups; keeps its masks."""
        seen: list[Any] = [batch.observations for batch in batches]
        observations: Observations
        if isinstance(seen[0], dict):
            observations = {key: np.concatenate([each[key] for each in seen]) for key in seen[0]}
        else:
            observations = np.concatenate(seen)
        self._masks = np.concatenate([batch.masks for batch in batches])
        return Batch(
            observations,
            self._masks,
            np.concatenate([batch.rewards for batch in batches]),
            np.concatenate([batch.dones for batch in batches]),
            [info for batch in batches for info in batch.infos],
        )


def require_stackable(name: str, space: Any) -> None:
    """Raise InvalidValueError unless observations have one shape, as Stable-Baselines3 needs."""
    if not isinstance(space, Box | Dict):
        accepted = (
            '"dict" or "features": Stable-Baselines3 stacks observations, and '
            f"{type(space).__name__} spaces have no fixed shape"
        )
        raise InvalidValueError("observation", name, accepted)
