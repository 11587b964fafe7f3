"""`TextActions`: any environment with texts in and texts out, for language models and agent frameworks."""

from __future__ import annotations

import string
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Text

from tirgym.envs.compiler_env import CompilerEnv
from tirgym.envs.decision import DecisionEnv
from tirgym.envs.schedule import ScheduleEnv
from tirgym.errors import InvalidValueError
from tirgym.spaces.action_text import ActionTexts, OptionTexts, TransformTexts
from tirgym.spaces.decision_text import describe_question
from tirgym.spaces.text import describe
from tirgym.spaces.text_budget import LEAST_TOKENS
from tirgym.whole_number import require_whole

__all__ = ["TextActions"]

_ACTION_CHARACTERS = 4096
_CHARACTERS_A_TOKEN = 64
"""More than any line of a program has for each token that is counted."""


class TextActions(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Observations are texts of at most `max_tokens`, actions are texts.

    An action reads `Split(loop=0, factor=8)` or STOP in the Schedule environments, and
    `c.vector = 16 lanes` in the Decision environments, where the number of the option (`4`) and its
    label do as well. Case, blanks, quotes and code fences are forgiven. `legal_texts()` answers all
    that may be played now.

    `info["refused"]` is "" where the action was played, else one line that says what would be accepted.
    A text that names an action which is not legal here is the environment's own no-op with its
    penalty. A text that names no action changes nothing, pays 0 and is no step; `patience` of them in
    a row truncate the episode, whose final program is evaluated as after STOP.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], max_tokens: int = 4000, patience: int = 8
    ) -> None:
        if isinstance(max_tokens, bool) or max_tokens < LEAST_TOKENS:
            raise InvalidValueError("max_tokens", max_tokens, f"at least {LEAST_TOKENS}")
        require_whole("patience", patience, 1)
        if not isinstance(env.unwrapped, ScheduleEnv | DecisionEnv):
            accepted = "an environment of tirgym: Schedule or Decision"
            raise InvalidValueError("environment with texts", str(env.unwrapped), accepted)
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, max_tokens=max_tokens, patience=patience
        )
        super().__init__(env)
        self.max_tokens, self.patience = max_tokens, patience
        self.observation_space = Text(_CHARACTERS_A_TOKEN * max_tokens, charset=string.printable)
        self.action_space = Text(_ACTION_CHARACTERS, charset=string.printable)
        self._refusals = 0

    def legal_texts(self) -> list[str]:
        """The actions that may be played now."""
        return self._texts().texts()

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        """Start an episode."""
        _, info = self.env.reset(**kwargs)
        self._refusals = 0
        return self._observe(), {**info, "refused": ""}

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Play the action that the text names."""
        texts, refused = self._texts(), ""
        try:
            number = texts.read(action)
        except InvalidValueError as error:
            refused = str(error)
            try:
                number = texts.read(action, legal=False)
            except InvalidValueError:
                return self._unread(refused)
        self._refusals = 0
        _, reward, terminated, truncated, info = self.env.step(number)
        return self._observe(), reward, terminated, truncated, {**info, "refused": refused}

    def _unread(self, refused: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """A text that names no action."""
        env = cast(CompilerEnv, self.env.unwrapped)
        self._refusals += 1
        if self._refusals >= self.patience:
            reward, fatal, info = env.finish()
            return self._observe(), reward, fatal, not fatal, {**info, "refused": refused}
        return self._observe(), 0.0, False, False, {**env._info(), "refused": refused}

    def _texts(self) -> ActionTexts:
        env, mask = self.env.unwrapped, cast(CompilerEnv, self.env.unwrapped).action_masks()
        if isinstance(env, DecisionEnv):
            return OptionTexts(env.walk.question, mask)
        assert isinstance(env, ScheduleEnv)  # checked when the wrapper was made
        return TransformTexts(env.action_space, mask)

    def _observe(self) -> str:
        env = self.env.unwrapped
        mask = cast(CompilerEnv, env).action_masks().astype(np.int8)
        if isinstance(env, DecisionEnv):
            costs = env._view().costs
            return describe_question(env.program, env.walk.question, costs, mask, self.max_tokens)
        assert isinstance(env, ScheduleEnv)  # checked when the wrapper was made
        return describe(env.program, env.action_space, mask, self.max_tokens)
