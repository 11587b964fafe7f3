"""`LegalTransforms`: what can be done at a state, for `frontier`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tirgym.harness.backend import backend
from tirgym.harness.decision_graph.model import DecisionGraph, State
from tirgym.harness.transforms import default_vocabulary, parse_transform
from tirgym.harness.vocabulary import Vocabulary
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = ["LegalTransforms"]


class LegalTransforms:
    """The transforms of a vocabulary that are legal at a state, as text; made by replay.

    `vocabulary` None is the default one of each root's backend.
    """

    def __init__(
        self,
        graph: DecisionGraph,
        vocabulary: Vocabulary | None = None,
        load: Callable[[str], Workload] = load_workload,
    ) -> None:
        self.graph, self._load = graph, load
        self._given = vocabulary
        self._vocabularies: dict[str, Vocabulary] = {}

    def __call__(self, state: State) -> tuple[str, ...]:
        """In the order of the vocabulary."""
        root = self.graph.roots[state.root]
        program = backend(root.target.backend).start(self._load(root.workload), root.target)
        for text in self.graph.transforms(state.id):
            program = program.apply(parse_transform(text))
        vocabulary = self._vocabulary(root.target.backend)
        mask = program.legal_mask(vocabulary)
        return tuple(str(vocabulary[int(action)]) for action in np.flatnonzero(mask))

    def _vocabulary(self, name: str) -> Vocabulary:
        if self._given is not None:
            return self._given
        if name not in self._vocabularies:
            self._vocabularies[name] = default_vocabulary(name)
        return self._vocabularies[name]
