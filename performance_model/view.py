"""`ProgramView`: what a performance model sees of a program; the table of views by IR dialect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tirgym.errors import UnknownNameError
from tirgym.harness.program import Program
from tirgym.spaces.graph import IRGraph

__all__ = ["VIEWERS", "ProgramView", "Viewer", "view_of"]


@dataclass(frozen=True, slots=True)
class ProgramView:
    """Static facts alone: a pure function of kernel, target and applied transforms."""

    cost: NDArray[np.float64]
    """(costs,): the static cost, as the natural logarithm of µs, and what it is made of"""
    stores: NDArray[np.float64]
    """(blocks, store features): one row for each block, in the order of the graph's blocks"""
    shares: NDArray[np.float64]
    """(blocks,): share of each block in the static cost's instructions; sums to 1"""
    graph: IRGraph


class Viewer(Protocol):
    """Sees the programs of one IR dialect."""

    cost_features: tuple[str, ...]
    """names of `ProgramView.cost`, the logarithm of µs first"""
    store_features: tuple[str, ...]
    """names of the columns of `ProgramView.stores`"""

    def view(self, program: Program) -> ProgramView:
        """What there is to see of `program`."""


VIEWERS: dict[str, str] = {"tensorir": "tirgym.performance_model.stores:TensorIRViewer"}
"""IR dialect → "module:Class"; imported only when asked for."""


@cache
def viewer_for(dialect: str) -> Viewer:
    """The viewer of an IR dialect; raises UnknownNameError."""
    if dialect not in VIEWERS:
        raise UnknownNameError("IR dialect with a performance model", dialect, sorted(VIEWERS))
    module, _, name = VIEWERS[dialect].partition(":")
    return cast(Viewer, getattr(import_module(module), name)())


def view_of(program: Program) -> ProgramView:
    """The view of `program`; raises UnknownNameError for a dialect that no model is made for."""
    return viewer_for(program.dialect).view(program)
