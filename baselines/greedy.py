"""Greedy search: take the best single step, measured, until no step helps.

    tirgym optimize matmul --agent greedy --trials 64 --seed 0

At each program the static cost orders the legal steps, the most promising are measured, and the
fastest becomes the next program. When none is faster the search restarts from a random walk.
Where nothing is measured, predictions stand in for speedups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.baselines.random_walk import random_walk
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.macros import VOCABULARY_NAMES
from tirgym.harness.program import Program

__all__ = ["Args", "GreedyAgent"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the greedy agent."""

    tries: int = 8
    """steps measured at each program"""
    gain: float = 1.02
    """a step is taken when it is faster by this factor"""
    restart_depth: int = 4
    """transforms of the random walk that starts the next climb"""
    restarts: int = 100
    """climbs at most, however few trials they cost"""


class GreedyAgent:
    """Steepest ascent on measured speedup, one transform at a time."""

    name = "greedy"
    spaces = VOCABULARY_NAMES
    """action tables that the agent plays: the one of the search"""

    def __init__(self, **options: Any) -> None:
        self.args = Args(**options)
        if self.args.tries < 1:
            raise InvalidValueError("tries", self.args.tries, "at least 1")

    def run(self, search: Search) -> None:
        """Spend the budget."""
        program = search.start
        for _ in range(self.args.restarts):
            if not self._climb(search, program):
                return
            program = random_walk(search.start, search, self.args.restart_depth)

    def _climb(self, search: Search, program: Program) -> bool:
        """Follow the best steps from `program`; False once the budget is spent."""
        evaluation = search.evaluate(program)
        if evaluation is None:
            return False
        best = search.worth(program, evaluation)
        while True:
            following: Program | None = None
            steps = self._promising(search, program)
            answers = list(search.evaluate_many(steps))
            if len(answers) < len(steps):
                return False
            for step, evaluation in zip(steps, answers, strict=True):
                worth = search.worth(step, evaluation)
                if worth > best * self.args.gain:
                    following, best = step, worth
            if following is None:
                return True
            program = following

    def _promising(self, search: Search, program: Program) -> list[Program]:
        """The `tries` legal steps of lowest static cost, structurally different ones; where a cost
        takes a compilation, as many random ones instead."""
        if getattr(search.cost, "compiles", False):
            return self._drawn(search, program)
        steps: dict[str, Program] = {}
        for action in np.flatnonzero(program.legal_mask(search.vocabulary)):
            step = program.apply(search.vocabulary[int(action)])
            steps.setdefault(step.ir_key, step)
        steps.pop(program.ir_key, None)
        ranked = sorted(steps.items(), key=lambda item: (search.cost.predict_us(item[1]), item[0]))
        return [step for _, step in ranked[: self.args.tries]]

    def _drawn(self, search: Search, program: Program) -> list[Program]:
        """Random steps, drawn as in random walks: first a kind of transform, then an instance."""
        drawn = (random_walk(program, search, 1) for _ in range(4 * self.args.tries))
        steps = {step.ir_key: step for step in drawn if step.ir_key != program.ir_key}
        return list(steps.values())[: self.args.tries]
