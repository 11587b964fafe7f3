"""`CostModel`: predicted time of a program without running it; `SpeedupModel`: and how sure of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.program import Program

__all__ = ["COST_MODELS", "CostModel", "SpeedupModel", "static_cost_model"]


class CostModel(Protocol):
    """Ranks programs of one workload; lower is better."""

    def predict_us(self, program: Program) -> float:
        """Predicted time of one call in µs, finite and positive; a pure function of the program."""


class SpeedupModel(CostModel, Protocol):
    """Several opinions on the speedup of a program over its unscheduled one."""

    def opinions(self, programs: Sequence[Program]) -> NDArray[np.float64]:
        """(members, len(programs)): natural logarithms of the speedup, by each member.

        The model's own prediction is the mean over the members.
        """


COST_MODELS: Mapping[str, str] = {"triton": "tirgym.harness.triton.cost:TritonCostModel"}
"""Backend → "module:Class" of the static cost model of its programs; the others have that of TensorIR."""

_TENSORIR = "tirgym.harness.static_cost:StaticCostModel"


def static_cost_model(backend: str = "llvm") -> CostModel:
    """A new static cost model for the programs of `backend`."""
    module, _, name = COST_MODELS.get(backend, _TENSORIR).partition(":")
    return cast(CostModel, getattr(import_module(module), name)())
