"""`EnvGroup`: environments that one process steps together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tirgym.baselines.ppo.curriculum_env import CurriculumEnv
from tirgym.baselines.ppo.env_spec import EnvSpec

__all__ = ["Batch", "EnvGroup", "Group", "Observations"]

Observations = NDArray[Any] | dict[str, NDArray[Any]]
"""Observations of n environments: one array, or one for each key, with n as first dimension."""


@dataclass(slots=True)
class Batch:
    """What n environments answered to a step or a reset."""

    observations: Observations
    """of the next step; after the end of an episode, of the next episode"""
    masks: NDArray[np.bool_]
    """(n, actions): legal actions of the next step"""
    rewards: NDArray[np.float32]
    """(n,)"""
    dones: NDArray[np.bool_]
    """(n,): the episode has ended"""
    infos: list[dict[str, Any]]
    """n; empty but at the end of an episode: "episode" as of `CurriculumEnv`,
    "terminal_observation", and "TimeLimit.truncated": cut off, with more to be paid """


class Group(Protocol):
    """Environments that are stepped together, here or in another process."""

    size: int

    def send(self, request: str, *arguments: Any) -> None:
        """Begin `reset`, `step`, `state` or `restore` (see `EnvGroup`)."""

    def receive(self) -> Any:
        """Its answer."""

    def close(self) -> None:
        """End the environments."""


class EnvGroup:
    """Environments with the numbers `indices` of `spec`, in this process."""

    def __init__(self, spec: EnvSpec, indices: Sequence[int]) -> None:
        self.size = len(indices)
        self._envs: list[CurriculumEnv] = spec.make_all(indices)
        self._answer: Any = None

    def send(self, request: str, *arguments: Any) -> None:
        """Carry out a request at once."""
        self._answer = getattr(self, request)(*arguments)

    def receive(self) -> Any:
        """The answer of the last request."""
        answer, self._answer = self._answer, None
        return answer

    def reset(self) -> Batch:
        """Start an episode everywhere."""
        first = [env.reset()[0] for env in self._envs]
        return self._batch(first, [0.0] * self.size, [False] * self.size, self._no_infos())

    def step(self, actions: Sequence[int]) -> Batch:
        """One action for each environment; where an episode ends, the next one starts."""
        observations, rewards, dones, infos = [], [], [], self._no_infos()
        for number, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            observation, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            if done:
                infos[number] = {
                    "episode": info["episode"],
                    "terminal_observation": observation,
                    "TimeLimit.truncated": _leaves_more(env, terminated, truncated),
                }
                observation, _ = env.reset()
            observations.append(observation)
            rewards.append(reward)
            dones.append(done)
        return self._batch(observations, rewards, dones, infos)

    def state(self) -> list[dict[str, Any]]:
        """The state of each environment, plain JSON data."""
        return [env.state() for env in self._envs]

    def restore(self, states: Sequence[Mapping[str, Any]]) -> Batch:
        """Go on from states, of as many environments."""
        seen = [env.restore(state)[0] for env, state in zip(self._envs, states, strict=True)]
        return self._batch(seen, [0.0] * self.size, [False] * self.size, self._no_infos())

    def close(self) -> None:
        """End the environments and their evaluator."""
        for env in self._envs:
            env.close()

    def _no_infos(self) -> list[dict[str, Any]]:
        return [{} for _ in range(self.size)]

    def _batch(
        self,
        observations: Sequence[Any],
        rewards: Sequence[float],
        dones: Sequence[bool],
        infos: list[dict[str, Any]],
    ) -> Batch:
        return Batch(
            stacked(observations),
            np.stack([env.action_masks() for env in self._envs]),
            np.array(rewards, np.float32),
            np.array(dones, np.bool_),
            infos,
        )


def _leaves_more(env: CurriculumEnv, terminated: bool, truncated: bool) -> bool:
    """Whether the episode was cut off before all was paid: learners add the value of its last state.

    A reward that pays at the end has paid in full by then, for the program that there was.
    """
    return truncated and not terminated and not env.get_wrapper_attr("pays_at_end")


def stacked(observations: Sequence[Any]) -> Observations:
    """Observations of one environment each, in arrays of all."""
    if isinstance(observations[0], dict):
        return {key: np.stack([each[key] for each in observations]) for key in observations[0]}
    return np.stack(observations)
