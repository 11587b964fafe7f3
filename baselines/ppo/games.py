"""`Game`: the choices of an environment without the environment, for policies that search.

A game begins at a program, shows its states as the environment would, and says which action each
option of a choice is. So a policy that was trained in an environment walks through `Choices`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from tirgym.baselines.choices import Choices, Steps
from tirgym.envs.registration import ENVIRONMENTS
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.cost import CostModel
from tirgym.harness.decisions import Walk, design_space
from tirgym.harness.macros import VOCABULARY_NAMES, named_vocabulary
from tirgym.harness.program import Program
from tirgym.spaces.decision_space import OptionSpace, make_decision_observation
from tirgym.spaces.graph import encoder_for
from tirgym.spaces.observation import make_observation
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["Game", "game_of", "vocabulary_name"]


class Game(Protocol):
    """One kind of environment."""

    @property
    def actions(self) -> Space[Any]:
        """The action space."""

    @property
    def observations(self) -> Space[Any]:
        """The observation space."""

    def begin(self, start: Program) -> Choices:
        """The first choice about an unscheduled program."""

    def observe(self, state: Choices, cost: CostModel) -> tuple[Any, NDArray[np.bool_]]:
        """What the environment shows of a state with an open choice, and its mask over all actions."""

    def taken(self, state: Choices) -> NDArray[np.int64]:
        """(options,): the action that each option of the open choice is."""


class DecisionGame:
    """The compiler's own open choices."""

    def __init__(
        self, observation: str, backend: str, vocabulary: str, costs: bool, depth: int
    ) -> None:
        self.actions = OptionSpace()
        self._form, self._costs = make_decision_observation(observation, self.actions), costs
        self.observations = self._form.space

    def begin(self, start: Program) -> Walk:
        """The first question."""
        return design_space(start)

    def observe(self, state: Choices, cost: CostModel) -> tuple[Any, NDArray[np.bool_]]:
        """Observation and mask; `cost` prices the options where the policy was shown prices."""
        assert isinstance(state, Walk)  # the only states that this class makes
        program, question = state.program, state.question
        graph = encoder_for(program.dialect).encode(program)
        costs = state.costs(cost) if self._costs else None
        mask = self.actions.mask(question).astype(np.bool_)
        return self._form.observe(program, graph, question, costs), mask

    def taken(self, state: Choices) -> NDArray[np.int64]:
        """The numbers of the options."""
        assert state.question is not None  # callers ask only where there is a choice
        return np.arange(len(state.question.options))


class ScheduleGame:
    """The transforms of an action table, at most `depth` of them."""

    def __init__(
        self, observation: str, backend: str, vocabulary: str, costs: bool, depth: int
    ) -> None:
        self._depth = depth
        self.actions = TransformSpace(named_vocabulary(vocabulary, backend))
        self._form = make_observation(observation, self.actions)
        self.observations = self._form.space

    def begin(self, start: Program) -> Steps:
        """All legal transforms."""
        return Steps(start, self.actions.vocabulary, self._depth)

    def observe(self, state: Choices, cost: CostModel) -> tuple[Any, NDArray[np.bool_]]:
        """Observation and mask."""
        program = state.program
        mask = np.zeros(int(self.actions.n), np.int8)
        mask[self.taken(state)] = 1
        graph = encoder_for(program.dialect).encode(program)
        return self._form.observe(program, graph, mask), mask.astype(np.bool_)

    def taken(self, state: Choices) -> NDArray[np.int64]:
        """The actions that are legal, STOP last."""
        assert state.question is not None  # callers ask only where there is a choice
        return np.array([option.value for option in state.question.options])


_GAMES: Mapping[str, Callable[[str, str, str, bool, int], Game]] = {
    "tirgym.envs.decision:DecisionEnv": DecisionGame,
    "tirgym.envs.schedule:ScheduleEnv": ScheduleGame,
}
"""Entry point of the environment → its game."""


def game_of(
    environment: str,
    observation: str = "dict",
    backend: str = "llvm",
    vocabulary: str = "",
    costs: bool = False,
    depth: int = 32,
) -> Game:
    """The game that the environment id plays; raises UnknownNameError for an id that has none.

    `vocabulary` is the name of the action table where there is one, `costs` whether options are
    shown with their static cost (`candidate_costs`), `depth` the most transforms of a program.
    """
    played = [name for name, made in ENVIRONMENTS.items() if made["entry_point"] in _GAMES]
    if environment not in played:
        raise UnknownNameError("environment of a policy", environment, played)
    made = _GAMES[ENVIRONMENTS[environment]["entry_point"]]
    return made(observation, backend, vocabulary, costs, depth)


def vocabulary_name(actions: Space[Any], backend: str) -> str:
    """Name of the table that `actions` are, "" where they have none.

    Raises InvalidValueError for a table that has no name: nobody could make it again.
    """
    if not isinstance(actions, TransformSpace):
        return ""
    for name in VOCABULARY_NAMES:
        if named_vocabulary(name, backend).digest == actions.vocabulary.digest:
            return name
    accepted = f"the table called {', '.join(VOCABULARY_NAMES)} with its default factors"
    raise InvalidValueError("vocabulary of a policy", actions.vocabulary.digest, accepted)
