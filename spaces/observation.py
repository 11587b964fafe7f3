"""`Observation`: the forms in which a program is shown; the table of their names."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from tirgym.errors import UnknownNameError
from tirgym.harness.program import Program
from tirgym.spaces.graph import IRGraph
from tirgym.spaces.transform_space import TransformSpace

__all__ = ["OBSERVATIONS", "Observation", "make_observation"]


class Observation(Protocol):
    """One form of observation: its space, and how a program is put into it."""

    space: Space[Any]

    def observe(self, program: Program, graph: IRGraph, mask: NDArray[np.int8]) -> Any:
        """A new member of `space` that shares no array with an earlier one.

        `graph` is the encoded `program`, `mask` its action mask with STOP, shape (n,).
        """

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """New arrays that the space has no place for; always the same keys, for `info`."""

    def overflow(self, graph: IRGraph) -> int:
        """Nodes and edges of `graph` that the form has no room for; 0 when it shows all."""


OBSERVATIONS: dict[str, str] = {
    "dict": "tirgym.spaces.padded:PaddedObservation",
    "graph": "tirgym.spaces.graph_space:GraphObservation",
    "features": "tirgym.spaces.features:FeatureObservation",
    "text": "tirgym.spaces.text:TextObservation",
}
"""Name → "module:Class"; each class takes the action space."""


def make_observation(name: str, actions: TransformSpace) -> Observation:
    """The observation form called `name`; raises UnknownNameError."""
    if name not in OBSERVATIONS:
        raise UnknownNameError("observation", str(name), OBSERVATIONS)
    module, _, attribute = OBSERVATIONS[name].partition(":")
    return cast(Observation, getattr(import_module(module), attribute)(actions))
