"""Options of the compiler as an observation: a vector beside the program."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from tirgym.harness.backends.llvm_options import OPTIONS, options_of
from tirgym.harness.program import Program
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.graph import IRGraph
from tirgym.spaces.observation import Observation

__all__ = ["OptionsObservation", "options_vector"]


def options_vector(program: Program) -> NDArray[np.float32]:
    """(len(OPTIONS),), in [0, 1]: for each option the place of its value among all, 1 for the last."""
    assert isinstance(program, TensorIRProgram)
    here = options_of(program.mod)
    return np.array(
        [
            option.values.index(here.get(option.name, option.default)) / (len(option.values) - 1)
            for option in OPTIONS.values()
        ],
        np.float32,
    )


class OptionsObservation:
    """A form of observation, and the options beside it.

    A dict gets the entry "options", a vector is longer by as much; text shows them in the IR, and for
    a graph they stand in `info["options"]`, as they do for every form.
    """

    def __init__(self, inner: Observation) -> None:
        self._inner = inner
        self.space: Space[Any] = inner.space
        vector = Box(0.0, 1.0, (len(OPTIONS),), np.float32)
        if isinstance(inner.space, Dict):
            self.space = Dict({**inner.space.spaces, "options": vector})
        elif isinstance(inner.space, Box):
            low = np.concatenate([inner.space.low, vector.low])
            high = np.concatenate([inner.space.high, vector.high])
            self.space = Box(low, high, dtype=cast(Any, inner.space.dtype).type)

    def observe(self, program: Program, graph: IRGraph, mask: NDArray[np.int8]) -> Any:
        """As `Observation.observe`."""
        shown = self._inner.observe(program, graph, mask)
        if isinstance(self.space, Dict):
            return {**shown, "options": options_vector(program)}
        if isinstance(self.space, Box):
            return np.concatenate([shown, options_vector(program)]).astype(self.space.dtype)
        return shown

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """As `Observation.info`."""
        return self._inner.info(graph)

    def overflow(self, graph: IRGraph) -> int:
        """As `Observation.overflow`."""
        return self._inner.overflow(graph)
