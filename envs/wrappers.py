"""Wrappers around the environments."""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np

from tirgym.envs.compiler_env import CompilerEnv
from tirgym.errors import InvalidValueError
from tirgym.harness.account import Account, account
from tirgym.harness.explain import compare
from tirgym.harness.program import Program
from tirgym.whole_number import require_whole

__all__ = ["EarlyStop", "Explain"]


class EarlyStop(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Ends an episode once the best speedup grew by less than `gain` over `patience` steps.

    Counts from the reset, so no episode is cut before `patience` steps. The end is a truncation;
    the final program is evaluated in full as after STOP, and what that pays joins the last reward.

    Raises InvalidValueError for a reward that pays at the end alone: there is no gain to wait for.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], patience: int = 8, gain: float = 0.05) -> None:
        require_whole("patience", patience, 1)
        if not gain >= 0:
            raise InvalidValueError("gain", gain, "a relative gain of at least 0, such as 0.05")
        if cast(CompilerEnv, env.unwrapped).pays_at_end:
            accepted = (
                "one that pays at each step, such as static or measured of tirgym/Schedule-v0"
            )
            raise InvalidValueError("reward under EarlyStop", "paid at the end alone", accepted)
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


class Explain(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Adds to each `info` what the step changed, by static analysis alone (about 1 ms a step).

    `info["account"]` is float64 of shape (n, 2): the quantities before and after, in the order of
    `quantities`, which depends on the backend alone. `info["explanation"]` says what differs, one
    sentence a line, "" if nothing does. Both columns are the same after a reset and after an action
    that changes nothing. Raises UnknownNameError at the reset for a backend that has no accountant.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._at: tuple[Program, Account] | None = None

    @property
    def quantities(self) -> tuple[str, ...]:
        """Names of the rows of `info["account"]`; empty before the first reset."""
        return () if self._at is None else tuple(q.name for q in self._at[1].quantities)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        self._at = None
        return observation, {**info, **self._told()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and explain it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, **self._told()}

    def _told(self) -> dict[str, Any]:
        """What the current program differs in from the last one that was seen."""
        program = cast(CompilerEnv, self.env.unwrapped).program
        before = self._at
        now = before if before and before[0] is program else (program, account(program))
        self._at = now
        explanation = compare((before or now)[1], now[1])
        columns = [list(each.values.values()) for each in (explanation.before, explanation.after)]
        return {
            "account": np.array(columns, np.float64).T,
            "explanation": "\n".join(sentence.text for sentence in explanation.sentences),
        }
