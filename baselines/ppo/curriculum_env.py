"""`CurriculumEnv`: an environment whose every reset is about the next workload of a curriculum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from tirgym.baselines.ppo.curriculum import Choices, Curriculum
from tirgym.errors import TrainingError
from tirgym.kernels_suite.registry import load_workload

__all__ = ["CurriculumEnv"]


class CurriculumEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays `curriculum` in `env`, any environment whose reset takes the option "kernel".

    The last `info` of an episode gets "episode": its return "r", length "l", illegal actions
    "invalid", final "speedup" as the reward has paid it, whether that is "verified", and "workload".
    `state` and `restore` go on in the middle of an episode, by playing its actions again; rewards
    must be deterministic for that to be exact. A state names no kernel in a Python file but those of
    `choices`, what the curriculum draws from. A reward that is no finite number raises TrainingError.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], curriculum: Curriculum, choices: Choices = ()
    ) -> None:
        super().__init__(env)
        self.curriculum = curriculum
        self._played = {one.uri: one for shapes in choices for one in shapes}
        self._workload = ""
        self._actions: list[int] = []
        self._return, self._invalid = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; with `options` on what they name, else on what the curriculum draws."""
        if options:
            return self._begin(seed, options)
        return self._begin(seed, {"kernel": self.curriculum.draw()})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; the curriculum is told the return of an episode that ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        self._actions.append(int(action))
        if not math.isfinite(reward):
            raise TrainingError(
                f"the reward is {reward} at step {len(self._actions)} of an episode of "
                f"{self._workload} ({info.get('transform', '')}): mend the reward; "
                f"a training goes on from its last checkpoint"
            )
        self._return += reward
        self._invalid += int(not info["legal"])
        if terminated or truncated:
            self.curriculum.learn(self._return)
            info = {**info, "episode": self._summary(info)}
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Shape (n,), bool: the legal actions."""
        masks: NDArray[np.bool_] = self.env.get_wrapper_attr("action_masks")()
        return masks

    def state(self) -> dict[str, Any]:
        """The curriculum, and the episode as its workload and actions; plain JSON data."""
        return {
            "curriculum": self.curriculum.state(),
            "workload": self._workload,
            "actions": list(self._actions),
        }

    def restore(self, state: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Go on from a `state` that was taken in the middle of an episode."""
        uri = state["workload"]
        workload = self._played.get(uri) or load_workload(uri, files=False)
        observation, info = self._begin(None, {"kernel": workload})
        for action in state["actions"]:
            observation, _, _, _, info = self.step(action)
        self.curriculum.restore(state["curriculum"])
        return observation, info

    def _begin(self, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._workload = info["workload"]
        self._actions, self._return, self._invalid = [], 0.0, 0
        return observation, info

    def _summary(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "r": self._return,
            "l": len(self._actions),
            "invalid": self._invalid,
            "speedup": float(info["speedup"]),
            "verified": int(info["verified"]),
            "workload": self._workload,
        }
