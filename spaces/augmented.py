"""`AugmentedObservation`: any form of observation, with what an IR graph does not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.spaces.graph import IRGraph
from tirgym.spaces.observation import Observation

__all__ = ["AugmentedObservation", "Part"]

Part = tuple[Box, Callable[[Program], NDArray[Any]]]
"""A space of one dimension, and what computes its members."""


class AugmentedObservation:
    """A form of observation, and parts beside it.

    A dict gets every part as an entry, and a vector is longer by the first; text and graphs stay as
    they are.
    """

    def __init__(self, inner: Observation, parts: Mapping[str, Part]) -> None:
        self._inner = inner
        self._parts = parts
        self.space: Space[Any] = inner.space
        vector, self._vector = next(iter(parts.values()))
        if isinstance(inner.space, Dict):
            spaces = {name: space for name, (space, _) in parts.items()}
            self.space = Dict({**inner.space.spaces, **spaces})
        elif isinstance(inner.space, Box):
            low = np.concatenate([inner.space.low, vector.low])
            high = np.concatenate([inner.space.high, vector.high])
            self.space = Box(low, high, dtype=cast(Any, inner.space.dtype).type)

    def observe(self, program: Program, graph: IRGraph, mask: NDArray[np.int8]) -> Any:
        """As `Observation.observe`."""
        shown = self._inner.observe(program, graph, mask)
        if isinstance(self.space, Dict):
            beside = {name: compute(program) for name, (_, compute) in self._parts.items()}
            return {**shown, **beside}
        if isinstance(self.space, Box):
            return np.concatenate([shown, self._vector(program)]).astype(self.space.dtype)
        return shown

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """As `Observation.info`."""
        return self._inner.info(graph)

    def overflow(self, graph: IRGraph) -> int:
        """As `Observation.overflow`."""
        return self._inner.overflow(graph)
