"""`TransformSpace`: the discrete actions, one for each transform of a vocabulary, STOP last."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from tirgym.errors import InvalidValueError
from tirgym.harness.transforms.base import Transform, parse_call
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["STOP", "TransformSpace"]

STOP = "STOP"
"""Text form of the action that ends the episode."""


class TransformSpace(Discrete):
    """`Discrete(len(vocabulary) + 1)`: action i < n - 1 is `vocabulary[i]`, action n - 1 is STOP.

    `sample(mask)` takes the int8 mask of `info["action_mask"]`; STOP is legal in every state.
    """

    def __init__(
        self, vocabulary: Vocabulary, seed: int | np.random.Generator | None = None
    ) -> None:
        self.vocabulary = vocabulary
        super().__init__(len(vocabulary) + 1, seed=seed)

    @property
    def stop(self) -> int:
        """The action STOP: n - 1."""
        return len(self.vocabulary)

    @cached_property
    def table(self) -> tuple[str, ...]:
        """Text form of every action, in order."""
        return (*(str(transform) for transform in self.vocabulary), STOP)

    @cached_property
    def _by_call(self) -> dict[tuple[str, frozenset[tuple[str, int | str]]], int]:
        keys: dict[tuple[str, frozenset[tuple[str, int | str]]], int] = {}
        for action, text in enumerate(self.table[:-1]):
            head, arguments = parse_call(text)
            keys[head, frozenset(arguments.items())] = action
        return keys

    def transform(self, action: int) -> Transform | None:
        """The transform of `action`, None for STOP; raises InvalidValueError out of range."""
        if not 0 <= action < self.n:
            raise InvalidValueError("action", action, f"an integer from 0 to {self.n - 1}")
        return None if action == self.stop else self.vocabulary[int(action)]

    def action(self, transform: Transform | None) -> int:
        """The action of `transform` (None: STOP); raises InvalidValueError if there is none."""
        return self.stop if transform is None else self.vocabulary.index(transform)

    def to_text(self, action: int) -> str:
        """Text form of `action`; raises InvalidValueError out of range."""
        transform = self.transform(action)
        return STOP if transform is None else str(transform)

    def from_text(self, text: str) -> int:
        """The action that `text` names, whatever its spacing and order of arguments.

        Raises InvalidValueError for text that is no action of this space.
        """
        if text.strip() in (STOP, f"{STOP}()"):
            return self.stop
        head, arguments = parse_call(text)
        action = self._by_call.get((head, frozenset(arguments.items())))
        if action is None:
            kinds = ", ".join(kind.name for kind in self.vocabulary.kinds)
            accepted = f"one of the {self.n} actions ({kinds}, {STOP}) with parameters of its table"
            raise InvalidValueError("action", text, accepted)
        return action

    def mask(self, legal: NDArray[np.bool_]) -> NDArray[np.int8]:
        """Shape (n,), int8: `legal` over the vocabulary, then 1 for STOP; a new array."""
        mask = np.ones(self.n, np.int8)
        mask[:-1] = legal
        return mask

    def __repr__(self) -> str:
        return f"TransformSpace({self.n} actions, vocabulary {self.vocabulary.digest})"
