"""`random_program`: random legal schedules that get deep, for tests, benchmarks and studies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms.base import Transform
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["WEIGHTS", "draw_transform", "random_program"]

WEIGHTS: Mapping[str, float] = {
    "Split": 3.0,
    "Reorder": 3.0,
    "Fuse": 2.0,
    "ComputeAt": 3.0,
    "ReverseComputeAt": 3.0,
    "Vectorize": 0.7,
    "Parallel": 0.7,
    "Unroll": 0.5,
    "UnrollPragma": 0.2,
    "TransformLayout": 0.7,
    "SetScope": 0.2,
    "StorageAlign": 0.3,
}
"""Relative frequency of each kind of transform; 1 where it is not listed. Moves and loop changes
come often, marks that freeze loops come rarely, so that long schedules arise."""


def draw_transform(
    vocabulary: Vocabulary, mask: NDArray[np.bool_], rng: np.random.Generator
) -> Transform | None:
    """One legal transform: first its kind, by weight, then uniformly. None if nothing is legal."""
    legal = np.flatnonzero(mask)
    if not len(legal):
        return None
    found: list[NDArray[np.intp]] = []
    weights: list[float] = []
    for kind, (start, end) in vocabulary.spans.items():
        low, high = np.searchsorted(legal, (start, end))
        if high > low:
            found.append(legal[low:high])
            weights.append(WEIGHTS.get(kind.name, 1.0))
    total = np.cumsum(weights)
    kind_drawn = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
    actions = found[min(kind_drawn, len(found) - 1)]
    return vocabulary[int(actions[rng.integers(len(actions))])]  # type: ignore[no-any-return]


def random_program(
    program: TensorIRProgram, rng: np.random.Generator, depth: int, vocabulary: Vocabulary
) -> TensorIRProgram:
    """`program` after up to `depth` random legal transforms; fewer when nothing is legal any more."""
    for _ in range(depth):
        transform = draw_transform(vocabulary, program.legal_mask(vocabulary), rng)
        if transform is None:
            break
        program = program.apply(transform)
    return program
