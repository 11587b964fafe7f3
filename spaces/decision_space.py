"""`OptionSpace`: the actions of a decision; the forms in which an open decision is shown."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Graph, GraphInstance, Space, Text
from numpy.typing import NDArray

from tirgym.errors import UnknownNameError
from tirgym.harness.decisions.point import DecisionKind
from tirgym.harness.decisions.walk import MAX_OPTIONS, Question
from tirgym.harness.program import Program
from tirgym.harness.transforms.base import SlotLimits
from tirgym.spaces.decision_text import describe_question
from tirgym.spaces.features import FEATURE_NAMES, features
from tirgym.spaces.graph import BOUND, IRGraph, NodeType
from tirgym.spaces.graph_space import GraphSpace, to_instance
from tirgym.spaces.padded import PaddedGraph
from tirgym.spaces.text import MAX_CHARACTERS

__all__ = [
    "DECISION_OBSERVATIONS",
    "OPTION_FEATURES",
    "DecisionObservation",
    "OptionSpace",
    "make_decision_observation",
    "target_node",
]

OPTION_FEATURES = ("exists", "value", "log_value", "static_choice", "known_cost", "log_cost_ratio")
"""Columns of `options`: value / 64, log2(1 + value) / 8, and where costs are asked for the natural
logarithm of this option's static cost over the cheapest, in [0, 8]."""

_KINDS = tuple(DecisionKind)


class OptionSpace(Discrete):
    """`Discrete(MAX_OPTIONS)`: action i takes option i of the open question; others are masked."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(MAX_OPTIONS, seed=seed)

    def mask(self, question: Question | None) -> NDArray[np.int8]:
        """(n,), int8: 1 for the options that there are; when all is decided, option 0 alone.

        An all-zero mask would be taken for a uniform one.
        """
        mask = np.zeros(MAX_OPTIONS, np.int8)
        mask[: len(question.options) if question is not None else 1] = 1
        return mask


def target_node(graph: IRGraph, question: Question | None) -> tuple[NodeType, int, int]:
    """Kind, index within the kind and number in the graph of the node that is decided about.

    The hardware node, the root of the nesting, stands for the whole program.
    """
    if question is None or question.node.kind == "program":
        return NodeType.HARDWARE, 0, 0
    kind = NodeType.LOOP if question.node.kind == "loop" else NodeType.BLOCK
    return kind, question.node.index, graph.offsets[kind] + question.node.index


def option_rows(question: Question | None, costs: Sequence[float] | None) -> NDArray[np.float32]:
    """(MAX_OPTIONS, len(OPTION_FEATURES)): what is known of each option, zero where there is none."""
    rows = np.zeros((MAX_OPTIONS, len(OPTION_FEATURES)), np.float32)
    if question is None:
        return rows
    cheapest = min(costs) if costs else 1.0
    for place, option in enumerate(question.options):
        ratio = math.log(costs[place] / cheapest) if costs else 0.0
        rows[place] = (
            1.0,
            min(option.value / 64, BOUND),
            math.log2(1 + option.value) / 8,
            float(place == question.default),
            float(costs is not None),
            min(ratio, BOUND),
        )
    return rows


def _kind_row(question: Question | None) -> NDArray[np.float32]:
    row = np.zeros(len(_KINDS), np.float32)
    if question is not None:
        row[_KINDS.index(question.kind)] = 1.0
    return row


class DecisionObservation(Protocol):
    """One form of observation: its space, and how an open decision is put into it."""

    space: Space[Any]

    def observe(
        self,
        program: Program,
        graph: IRGraph,
        question: Question | None,
        costs: Sequence[float] | None,
        mask: NDArray[np.int8] | None = None,
    ) -> Any:
        """A new member of `space`; `costs` are the static costs of the options, if asked for.

        `mask` (MAX_OPTIONS,) says which options may be taken, None that all that exist may.
        """

    def info(
        self, graph: IRGraph, question: Question | None, costs: Sequence[float] | None
    ) -> dict[str, NDArray[Any]]:
        """New arrays that the space has no place for; always the same keys, for `info`."""

    def overflow(self, graph: IRGraph) -> int:
        """Nodes and edges of `graph` that the form has no room for; 0 when it shows all."""


class PaddedDecision:
    """`PaddedGraph` and the decision ("dict"), for MLP and SB3 policies.

    `target` (slots,) is 1 at the node that is decided about; `kind` (len(DecisionKind),) is one-hot;
    `options` (MAX_OPTIONS, len(OPTION_FEATURES)) describes the options, `action_mask` says which
    exist.
    """

    def __init__(self, actions: OptionSpace) -> None:
        self._actions, self._graph = actions, PaddedGraph(SlotLimits())
        n = int(actions.n)
        self.space = Dict(
            {
                **self._graph.spaces,
                "target": Box(0, 1, (self._graph.slots,), np.int8),
                "kind": Box(0, 1, (len(_KINDS),), np.float32),
                "options": Box(-BOUND, BOUND, (n, len(OPTION_FEATURES)), np.float32),
                "action_mask": Box(0, 1, (n,), np.int8),
            }
        )

    def observe(
        self,
        program: Program,
        graph: IRGraph,
        question: Question | None,
        costs: Sequence[float] | None,
        mask: NDArray[np.int8] | None = None,
    ) -> dict[str, NDArray[np.generic]]:
        """The padded arrays, all new."""
        arrays = self._graph.arrays(graph)
        kind, index, _ = target_node(graph, question)
        target = np.zeros(self._graph.slots, np.int8)
        slot = self._graph.slot(kind, index)
        if question is not None and slot >= 0:
            target[slot] = 1
        arrays["target"] = target
        arrays["kind"] = _kind_row(question)
        arrays["options"] = option_rows(question, costs)
        arrays["action_mask"] = self._actions.mask(question) if mask is None else mask.copy()
        return arrays

    def info(
        self, graph: IRGraph, question: Question | None, costs: Sequence[float] | None
    ) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """Loops, blocks, buffers and edges without a slot."""
        return self._graph.overflow(graph)


class GraphDecision:
    """The graph without padding ("graph"); the last node feature marks what is decided about.

    `info` holds `action_node` (n,), the node that is decided about for each option that exists and
    -1 elsewhere, and `kind` and `options` as in "dict".
    """

    def __init__(self, actions: OptionSpace) -> None:
        plain = GraphSpace()
        edges = cast(Box, plain.edge_space)
        width = cast(Box, plain.node_space).shape[0] + 1
        self.space = Graph(
            node_space=Box(-BOUND, BOUND, (width,), np.float32),
            edge_space=Box(-BOUND, BOUND, edges.shape, np.float32),
        )

    def observe(
        self,
        program: Program,
        graph: IRGraph,
        question: Question | None,
        costs: Sequence[float] | None,
        mask: NDArray[np.int8] | None = None,
    ) -> GraphInstance:
        """The graph."""
        plain = to_instance(graph)
        mark = np.zeros((len(graph.nodes), 1), np.float32)
        if question is not None:
            mark[target_node(graph, question)[2]] = 1.0
        return GraphInstance(
            np.concatenate([plain.nodes, mark], axis=1), plain.edges, plain.edge_links
        )

    def info(
        self, graph: IRGraph, question: Question | None, costs: Sequence[float] | None
    ) -> dict[str, NDArray[Any]]:
        """The targeted node, the kind and the options, with their costs if these are asked for."""
        nodes = np.full(MAX_OPTIONS, -1, np.int32)
        if question is not None:
            nodes[: len(question.options)] = target_node(graph, question)[2]
        return {
            "action_node": nodes,
            "kind": _kind_row(question),
            "options": option_rows(question, costs),
        }

    def overflow(self, graph: IRGraph) -> int:
        """0: a graph of any size is shown in full."""
        return 0


class FeatureDecision:
    """A flat vector ("features"): the pooled graph, the kind of decision, then the option rows."""

    def __init__(self, actions: OptionSpace) -> None:
        width = len(FEATURE_NAMES) + len(_KINDS) + MAX_OPTIONS * len(OPTION_FEATURES)
        self.space = Box(-BOUND, BOUND, (width,), np.float32)

    def observe(
        self,
        program: Program,
        graph: IRGraph,
        question: Question | None,
        costs: Sequence[float] | None,
        mask: NDArray[np.int8] | None = None,
    ) -> NDArray[np.float32]:
        """The vector."""
        parts = (features(graph), _kind_row(question), option_rows(question, costs).ravel())
        return np.concatenate(parts)

    def info(
        self, graph: IRGraph, question: Question | None, costs: Sequence[float] | None
    ) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """0: pooling has room for every graph."""
        return 0


class TextDecision:
    """The decision in words ("text"), for language models: answer with the number of an option."""

    def __init__(self, actions: OptionSpace) -> None:
        self.space = Text(MAX_CHARACTERS, charset=string.printable)

    def observe(
        self,
        program: Program,
        graph: IRGraph,
        question: Question | None,
        costs: Sequence[float] | None,
        mask: NDArray[np.int8] | None = None,
    ) -> str:
        """The text, ASCII; blind to measurements."""
        return describe_question(program, question, costs, mask)

    def info(
        self, graph: IRGraph, question: Question | None, costs: Sequence[float] | None
    ) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def overflow(self, graph: IRGraph) -> int:
        """0: what is left out is said in the text."""
        return 0


DECISION_OBSERVATIONS: dict[str, str] = {
    "dict": "tirgym.spaces.decision_space:PaddedDecision",
    "graph": "tirgym.spaces.decision_space:GraphDecision",
    "features": "tirgym.spaces.decision_space:FeatureDecision",
    "text": "tirgym.spaces.decision_space:TextDecision",
}
"""Name → "module:Class"; each class takes the action space."""


def make_decision_observation(name: str, actions: OptionSpace) -> DecisionObservation:
    """The observation form called `name`; raises UnknownNameError."""
    if name not in DECISION_OBSERVATIONS:
        raise UnknownNameError("observation", str(name), DECISION_OBSERVATIONS)
    module, _, attribute = DECISION_OBSERVATIONS[name].partition(":")
    return cast(DecisionObservation, getattr(import_module(module), attribute)(actions))
