"""`PaddedObservation`: the graph in arrays of fixed shape ("dict"), for MLP and SB3 policies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from tirgym.harness.program import Program
from tirgym.harness.transforms.base import SlotLimits
from tirgym.harness.vocabulary import Vocabulary
from tirgym.spaces.graph import (
    BOUND,
    TENSORIR,
    GraphTables,
    IRGraph,
    tables_of,
    target_slots,
)
from tirgym.spaces.transform_space import TransformSpace

__all__ = [
    "MAX_BUFFERS", "MAX_EDGES", "PaddedGraph", "PaddedObservation", "Room", "action_slots",
]  # fmt: skip

MAX_BUFFERS = 24
MAX_EDGES = 384
"""Random schedules of 32 steps over all kernels of core-v0 had 16 buffers and 204 edges at most."""


def _starts(limits: SlotLimits) -> tuple[int, int, int, int]:
    """First slot of hardware, loops, blocks and buffers."""
    return 0, 1, 1 + limits.max_loops, 1 + limits.max_loops + limits.max_blocks


def action_slots(vocabulary: Vocabulary) -> NDArray[np.int32]:
    """(len(vocabulary) + 1,): slot that each action targets; a constant of the vocabulary."""
    kind, index = target_slots(vocabulary)
    return np.array(_starts(vocabulary.limits), np.int32)[kind] + index


@dataclass(frozen=True)
class Room:
    """How many nodes of each type and how many edges have a slot."""

    nodes: tuple[int, ...]
    edges: int
    tables: GraphTables = TENSORIR

    @classmethod
    def of(cls, limits: SlotLimits) -> Self:
        """That of TensorIR programs under the limits of a vocabulary."""
        return cls((1, limits.max_loops, limits.max_blocks, MAX_BUFFERS), MAX_EDGES)

    @classmethod
    def for_programs(cls, vocabulary: Vocabulary) -> Self:
        """That of the programs which the transforms of `vocabulary` apply to."""
        tables = tables_of(vocabulary.dialect)
        return cls.of(vocabulary.limits) if tables.room is None else cls(*tables.room, tables)


class PaddedGraph:
    """A graph in arrays of fixed shape: 0 is the hardware node, then loops, blocks and buffers.

    `nodes` (slots, len(NODE_FEATURES)) and `edge_attr` (MAX_EDGES, len(EDGE_FEATURES)) are float32
    in [-8, 8]; `node_mask` and `edge_mask` mark the slots that are in use, all others are zero;
    `edge_index` (2, MAX_EDGES) holds source and target slots, `edge_type` `EdgeType`s. `overflow`
    (4,) counts the loops, blocks, buffers and edges that found no slot (an edge also goes when one
    of its ends does).
    """

    def __init__(self, limits: SlotLimits | Room) -> None:
        room = limits if isinstance(limits, Room) else Room.of(limits)
        self._room, self._max_edges, self._tables = room.nodes, room.edges, room.tables
        self._starts = tuple(accumulate(room.nodes[:-1], initial=0))
        self._width, self._edge_width = (
            len(room.tables.node_features),
            len(room.tables.edge_features),
        )
        self.slots = sum(self._room)
        top, kinds = self.slots - 1, len(room.tables.edge_types)
        edge_attr = (self._max_edges, self._edge_width)
        self.spaces: dict[str, Space[Any]] = {
            "nodes": Box(-BOUND, BOUND, (self.slots, self._width), np.float32),
            "node_mask": Box(0, 1, (self.slots,), np.int8),
            "edge_index": Box(0, top, (2, self._max_edges), np.int32),
            "edge_type": Box(0, kinds - 1, (self._max_edges,), np.int32),
            "edge_attr": Box(-BOUND, BOUND, edge_attr, np.float32),
            "edge_mask": Box(0, 1, (self._max_edges,), np.int8),
            "overflow": Box(0, 2**31 - 1, (len(self._room),), np.int32),
        }

    def slot(self, kind: IntEnum, index: int) -> int:
        """Slot of node `index` of its kind, -1 if there is no room for it."""
        return self._starts[kind] + index if 0 <= index < self._room[kind] else -1

    def overflow(self, graph: IRGraph) -> int:
        """Loops, blocks, buffers and edges without a slot."""
        if self._fits(graph):
            return 0
        nodes = sum(max(0, n - room) for n, room in zip(graph.counts, self._room, strict=True))
        return nodes + int(np.count_nonzero(~self._kept_edges(graph)))

    def arrays(self, graph: IRGraph) -> dict[str, NDArray[np.generic]]:
        """The arrays, all new."""
        if graph.tables is not self._tables:
            raise TypeError("the graph has other types of nodes than this form")
        nodes = np.zeros((self.slots, self._width), np.float32)
        node_mask = np.zeros(self.slots, np.int8)
        slot_of = np.empty(sum(graph.counts), np.int32)
        start = 0
        for count, room, first in zip(graph.counts, self._room, self._starts, strict=True):
            kept = min(count, room)
            nodes[first : first + kept] = graph.nodes[start : start + kept]
            node_mask[first : first + kept] = 1
            slot_of[start : start + count] = np.arange(first, first + count)
            start += count
        overflow = np.zeros(len(self._room), np.int32)
        links, types, edges = graph.links, graph.edge_types, graph.edges
        if not self._fits(graph):
            keep = self._kept_edges(graph)
            links, types, edges = links[:, keep], types[keep], edges[keep]
            lost = [n - room for n, room in zip(graph.counts[1:], self._room[1:], strict=True)]
            overflow[:] = (*(max(0, n) for n in lost), graph.links.shape[1] - int(keep.sum()))
        count = links.shape[1]
        edge_index = np.zeros((2, self._max_edges), np.int32)
        edge_type = np.zeros(self._max_edges, np.int32)
        edge_attr = np.zeros((self._max_edges, self._edge_width), np.float32)
        edge_mask = np.zeros(self._max_edges, np.int8)
        edge_index[:, :count] = slot_of[links]
        edge_type[:count] = types
        edge_attr[:count] = edges
        edge_mask[:count] = 1
        return {
            "nodes": nodes,
            "node_mask": node_mask,
            "edge_index": edge_index,
            "edge_type": edge_type,
            "edge_attr": edge_attr,
            "edge_mask": edge_mask,
            "overflow": overflow,
        }

    def _fits(self, graph: IRGraph) -> bool:
        held = all(n <= room for n, room in zip(graph.counts, self._room, strict=True))
        return held and graph.links.shape[1] <= self._max_edges

    def _kept_edges(self, graph: IRGraph) -> NDArray[np.bool_]:
        """(edges,): both ends have a slot, and it is among the first edges that there is room for."""
        place = np.concatenate(
            [np.arange(n) < room for n, room in zip(graph.counts, self._room, strict=True)]
        )
        keep: NDArray[np.bool_] = place[graph.links[0]] & place[graph.links[1]]
        return keep & (np.cumsum(keep) <= self._max_edges)


class PaddedObservation:
    """`PaddedGraph` with `action_mask` (n,), 1 for legal actions, STOP last, and `action_node` (n,).

    The limits are those of the vocabulary, or of the dialect's tables, so loop i always stands in slot
    1 + i, and `action_node`, the slot that each action targets, is the same in every state.
    """

    def __init__(self, actions: TransformSpace) -> None:
        self._graph = PaddedGraph(Room.for_programs(actions.vocabulary))
        self._action_node = action_slots(actions.vocabulary)
        n = int(actions.n)
        self.space = Dict(
            {
                **self._graph.spaces,
                "action_mask": Box(0, 1, (n,), np.int8),
                "action_node": Box(0, self._graph.slots - 1, (n,), np.int32),
            }
        )

    def info(self, graph: IRGraph) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """Loops, blocks, buffers and edges without a slot."""
        return self._graph.overflow(graph)

    def observe(
        self, program: Program, graph: IRGraph, mask: NDArray[np.int8]
    ) -> dict[str, NDArray[np.generic]]:
        """The padded arrays, all new."""
        arrays = self._graph.arrays(graph)
        arrays["action_mask"] = mask.copy()
        arrays["action_node"] = self._action_node.copy()
        return arrays
