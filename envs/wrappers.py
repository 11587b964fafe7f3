"""Wrappers around the environments."""

from __future__ import annotations

from typing import Any, cast

import gymnasium

from tirgym.envs.compiler_env import CompilerEnv
from tirgym.errors import InvalidValueError

__all__ = ["EarlyStop"]


class EarlyStop(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Ends an episode once the best speedup grew by less than `gain` over `patience` steps.

    Counts from the reset, so no episode is cut before `patience` steps. The end is a truncation;
    the final program is evaluated in full as after STOP, and what that pays joins the last reward.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], patience: int = 8, gain: float = 0.05) -> None:
        if isinstance(patience, bool) or patience < 1:
            raise InvalidValueError("patience", patience, "a whole number of at least 1")
        if not gain >= 0:
            raise InvalidValueError("gain", gain, "a relative gain of at least 0, such as 0.05")
        gymnasium.utils.RecordConstructorArgs.__init__(self, patience=patience, gain=gain)
        super().__init__(env)
        self.patience, self.gain = patience, gain
        self._best: list[float] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        self._best = [info["best_speedup"]]
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate when the gain has dried up."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._best.append(info["best_speedup"])
        if terminated or truncated or len(self._best) <= self.patience:
            return observation, reward, terminated, truncated, info
        if self._best[-1] >= self._best[-1 - self.patience] * (1 + self.gain):
            return observation, reward, terminated, truncated, info
        more, fatal, info = cast(CompilerEnv, self.env.unwrapped).finish()
        return observation, float(reward) + more, fatal, not fatal, info
