"""`Curriculum`: which kernel and shape an episode is about, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.kernels_suite.kernel import Workload

__all__ = ["CURRICULA", "Choices", "Curriculum", "Progress", "Rounds", "make_curriculum"]

Choices = Sequence[Sequence[Workload]]
"""For each kernel the workloads to draw from, one for each shape."""


class Curriculum(Protocol):
    """Draws workloads; the same seed, index and outcomes give the same draws."""

    def draw(self) -> Workload:
        """The workload of the next episode."""

    def learn(self, score: float) -> None:
        """Be told the return of the episode that was drawn last."""

    def state(self) -> dict[str, Any]:
        """What the next draws depend on, as plain JSON data."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""


class Rounds:
    """Every kernel once in each round, in random order, at a random shape.

    So each kernel has had its turn after as many episodes as there are kernels.
    """

    def __init__(self, choices: Choices, seed: int, index: int) -> None:
        self._choices = [list(shapes) for shapes in choices]
        self._rng = np.random.default_rng([seed, index])
        self._left: list[int] = []

    def draw(self) -> Workload:
        """A kernel that the round has not had yet, at one of its shapes, each uniform."""
        if not self._left:
            self._left = [int(kernel) for kernel in self._rng.permutation(len(self._choices))]
        shapes = self._choices[self._left.pop()]
        return shapes[int(self._rng.integers(len(shapes)))]

    def learn(self, score: float) -> None:
        """Nothing: rounds do not depend on returns."""

    def state(self) -> dict[str, Any]:
        """The generator, and the kernels that are left of the round."""
        return {"rng": self._rng.bit_generator.state, "left": list(self._left)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self._rng.bit_generator.state = state["rng"]
        self._left = [int(kernel) for kernel in state["left"]]


class Progress:
    """Half of the episodes uniform over kernels, half where the return has been moving lately.

    The movement of a kernel is the distance between a fast and a slow moving average of its
    returns (absolute learning progress, Matiisen et al., "Teacher-Student Curriculum Learning").
    Every kernel is played once before any is played again. Each environment keeps its own averages,
    so that draws do not depend on how environments are spread over processes.
    """

    FAST, SLOW = 0.3, 0.05
    """weight of the newest return in the two averages"""

    def __init__(self, choices: Choices, seed: int, index: int) -> None:
        self._choices = [list(shapes) for shapes in choices]
        self._rng = np.random.default_rng([seed, index])
        self._fresh = [int(kernel) for kernel in self._rng.permutation(len(self._choices))]
        self._averages = np.zeros((len(self._choices), 2))
        self._seen = [False] * len(self._choices)
        self._current = 0

    def draw(self) -> Workload:
        """A kernel that was never played, else one by movement, at one of its shapes."""
        if self._fresh:
            self._current = self._fresh.pop()
        else:
            self._current = int(self._rng.choice(len(self._choices), p=self._weights()))
        shapes = self._choices[self._current]
        return shapes[int(self._rng.integers(len(shapes)))]

    def learn(self, score: float) -> None:
        """Move the averages of the kernel that was drawn last."""
        averages = self._averages[self._current]
        if not self._seen[self._current]:
            self._seen[self._current] = True
            averages[:] = score
        averages += (score - averages) * np.array([self.FAST, self.SLOW])

    def state(self) -> dict[str, Any]:
        """The generator, the averages, and the kernels that were never played."""
        return {
            "rng": self._rng.bit_generator.state,
            "fresh": list(self._fresh),
            "averages": self._averages.tolist(),
            "seen": list(self._seen),
            "current": self._current,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`."""
        self._rng.bit_generator.state = state["rng"]
        self._fresh = [int(kernel) for kernel in state["fresh"]]
        self._averages = np.array(state["averages"], np.float64)
        self._seen = [bool(seen) for seen in state["seen"]]
        self._current = int(state["current"])

    def _weights(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(kernels,): probabilities of the next draw."""
        moved = np.abs(self._averages[:, 0] - self._averages[:, 1])
        uniform = np.full(len(moved), 1 / len(moved))
        total = moved.sum()
        return uniform if total <= 0 else 0.5 * uniform + 0.5 * moved / total


CURRICULA: Mapping[str, Callable[[Choices, int, int], Curriculum]] = {
    "rounds": Rounds,
    "progress": Progress,
}
"""Name → class, made from choices, seed and number of the environment."""


def make_curriculum(name: str, choices: Choices, seed: int, index: int) -> Curriculum:
    """The curriculum called `name` for environment `index`.

    Raises UnknownNameError, and InvalidValueError if there is nothing to draw from.
    """
    if name not in CURRICULA:
        raise UnknownNameError("curriculum", name, CURRICULA)
    if not choices or not all(choices):
        raise InvalidValueError("workloads", list(choices), "at least one shape of each kernel")
    return CURRICULA[name](choices, seed, index)
