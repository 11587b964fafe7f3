"""Random search: legal walks of random depth, each end point measured once.

    tirgym optimize matmul --agent random --trials 64 --seed 0

The row that every other agent has to beat at an equal budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.program import Program

__all__ = ["Args", "RandomAgent", "random_walk"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the random agent."""

    max_depth: int = 16
    """longest walk, in transforms"""
    fruitless: int = 200
    """walks in a row that end in a known program before the agent gives up"""


def random_walk(start: Program, search: Search, depth: int) -> Program:
    """`depth` legal transforms from `start`, or fewer where nothing is legal.

    A kind of transform is drawn first, then one of its legal instances: otherwise the kinds with
    many instances would fill the walk.
    """
    program, rng = start, search.rng
    spans = list(search.vocabulary.spans.values())
    for _ in range(depth):
        mask = program.legal_mask(search.vocabulary)
        open_spans = [span for span in spans if mask[span[0] : span[1]].any()]
        if not open_spans:
            break
        low, high = open_spans[rng.integers(len(open_spans))]
        action = low + int(rng.choice(np.flatnonzero(mask[low:high])))
        program = program.apply(search.vocabulary[action])
    return program


class RandomAgent:
    """Measures the end points of random legal walks."""

    name = "random"

    def __init__(self, **options: Any) -> None:
        self.args = Args(**options)
        if self.args.max_depth < 1:
            raise InvalidValueError("max_depth", self.args.max_depth, "at least 1")

    def run(self, search: Search) -> None:
        """Spend the budget."""
        seen = {search.start.ir_key}
        fruitless = 0
        while fruitless < self.args.fruitless and not search.out_of_time():
            depth = int(search.rng.integers(1, self.args.max_depth + 1))
            program = random_walk(search.start, search, depth)
            if program.ir_key in seen:
                fruitless += 1
                continue
            fruitless = 0
            seen.add(program.ir_key)
            if search.evaluate(program) is None:
                return
