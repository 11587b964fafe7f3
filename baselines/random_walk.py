"""Random search: legal walks of random depth, each end point measured once.

    tirgym optimize matmul --agent random --trials 64 --seed 0
    tirgym optimize matmul --agent random --space decision --trials 64 --seed 0

The row that every other agent has to beat at an equal budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.baselines.choices import SPACES, action_table, begin_choices
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Search
from tirgym.harness.macros import VOCABULARY_NAMES
from tirgym.harness.program import Program
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["Args", "RandomAgent", "random_walk"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the random agent."""

    space: str = "primitive"
    """transforms of an action table, or "decision": every open question gets a uniform answer"""
    max_depth: int = 16
    """longest walk, in transforms; decisions are walked to their end"""
    batch: int = 16
    """walks whose end points are measured together"""
    fruitless: int = 200
    """walks in a row that end in a known program before the agent gives up"""


def random_walk(
    start: Program, search: Search, depth: int, vocabulary: Vocabulary | None = None
) -> Program:
    """`depth` legal transforms from `start`, or fewer where nothing is legal.

    They are of `vocabulary`, by default that of the search.

    A kind of transform is drawn first, then one of its legal instances: otherwise the kinds with
    many instances would fill the walk.
    """
    program, rng = start, search.rng
    vocabulary = search.vocabulary if vocabulary is None else vocabulary
    spans = list(vocabulary.spans.values())
    for _ in range(depth):
        mask = program.legal_mask(vocabulary)
        open_spans = [span for span in spans if mask[span[0] : span[1]].any()]
        if not open_spans:
            break
        low, high = open_spans[rng.integers(len(open_spans))]
        action = low + int(rng.choice(np.flatnonzero(mask[low:high])))
        program = program.apply(vocabulary[action])
    return program


class RandomAgent:
    """Measures the end points of random legal walks."""

    name = "random"
    spaces = (*VOCABULARY_NAMES, "decision")

    def __init__(self, **options: Any) -> None:
        self.args = Args(**options)
        if self.args.space not in SPACES:
            raise UnknownNameError("space of agent random", self.args.space, SPACES)
        for field in ("max_depth", "batch"):
            if getattr(self.args, field) < 1:
                raise InvalidValueError(field, getattr(self.args, field), "at least 1")

    def run(self, search: Search) -> None:
        """Spend the budget."""
        seen = {search.start.ir_key}
        while batch := self._walks(search, seen):
            if sum(1 for _ in search.evaluate_many(batch)) < len(batch):
                return

    def _walks(self, search: Search, seen: set[str]) -> list[Program]:
        """End points of walks that are not in `seen`, which grows; none after `fruitless` walks in
        a row or when time is up."""
        programs: list[Program] = []
        fruitless, wanted = 0, min(self.args.batch, max(1, search.remaining_trials()))
        while len(programs) < wanted and fruitless < self.args.fruitless:
            if search.out_of_time():
                break
            program = self._draw(search)
            fruitless = fruitless + 1 if program.ir_key in seen else 0
            if program.ir_key not in seen:
                seen.add(program.ir_key)
                programs.append(program)
        return programs

    def _draw(self, search: Search) -> Program:
        """The end point of one walk."""
        if self.args.space == "decision":
            state = begin_choices(search, "decision", 0)
            while state.question is not None:
                state = state.answer(int(search.rng.integers(len(state.question.options))))
            answers = {answer.key: answer.value for answer in state.answers}
            search.decided[state.program.ir_key] = answers
            return state.program
        depth = int(search.rng.integers(1, self.args.max_depth + 1))
        table = action_table(search, self.args.space)
        return random_walk(search.start, search, depth, table)
