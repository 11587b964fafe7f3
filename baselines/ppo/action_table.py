"""`ActionTable`: every action of a vocabulary described by what it does and to which nodes.

So a policy that learned about `Split(loop=0, factor=8)` knows as much about `Split(loop=7, factor=8)`.
"""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.spaces.graph import NodeType
from tirgym.spaces.padded import PaddedGraph
from tirgym.spaces.transform_space import STOP

__all__ = ["ActionTable"]

_NODES = {"loop": NodeType.LOOP, "block": NodeType.BLOCK}


class ActionTable:
    """The actions of `vocabulary`, STOP last."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        described = [*(_described(transform) for transform in vocabulary), {f"kind {STOP}": 1.0}]
        columns = sorted({name for words in described for name in words})
        rows: dict[frozenset[tuple[str, float]], int] = {}
        places = [rows.setdefault(frozenset(words.items()), len(rows)) for words in described]
        graph = PaddedGraph(vocabulary.limits)
        seconds = [_second_slot(transform, graph) for transform in vocabulary]
        self.features: NDArray[np.float32] = np.array(
            [[dict(row).get(name, 0.0) for name in columns] for row in rows], np.float32
        )
        """(descriptions, width): one-hot kind of transform, log2(1 + x) / 8 and x / 64 of its numbers,
        one-hot of its words"""
        self.description: NDArray[np.int64] = np.array(places, np.int64)
        """(n,): row of each action; those that differ in their nodes alone share one"""
        self.second: NDArray[np.int64] = np.array([*seconds, -1], np.int64)
        """(n,): slot of the loop or block that an action names besides its target, or -1"""


def _described(transform: Transform) -> dict[str, float]:
    found = {f"kind {transform.name}": 1.0}
    for field in fields(transform):  # type: ignore[arg-type]
        value = getattr(transform, field.name)
        if field.name in _NODES:
            continue
        if isinstance(value, str):
            found[f"{field.name} {value}"] = 1.0
        else:
            found[f"log {field.name}"] = math.log2(1 + value) / 8
            found[field.name] = value / 64
    return found


def _second_slot(transform: Transform, graph: PaddedGraph) -> int:
    """Slot of the loop or block that is named and not targeted, -1 if there is none."""
    for name, kind in _NODES.items():
        if name != transform.node.kind and hasattr(transform, name):
            return graph.slot(kind, getattr(transform, name))
    return -1
