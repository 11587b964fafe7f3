"""Options of the compiler as an observation: a vector beside the program."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from tirgym.harness.backends.llvm_options import OPTIONS, options_of
from tirgym.harness.program import Program
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.spaces.augmented import AugmentedObservation
from tirgym.spaces.observation import Observation

__all__ = ["options_vector", "with_options"]


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


def with_options(inner: Observation) -> AugmentedObservation:
    """`inner` with the options as "options" beside it, which text shows in the IR."""
    space = Box(0.0, 1.0, (len(OPTIONS),), np.float32)
    return AugmentedObservation(inner, {"options": (space, options_vector)})
