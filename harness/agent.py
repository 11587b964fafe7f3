"""`Agent`: who plays; `Search`: what it is given; `Budget`: what it may spend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["Agent", "Budget", "Candidate", "Search"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run. A trial is one evaluator call with a code key new to the run."""

    trials: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program with its verdict."""

    program: Program
    evaluation: Evaluation


@dataclass
class Search:
    """All that an agent may use. `evaluate` counts trials and answers None once they are spent."""

    start: Program
    vocabulary: Vocabulary
    cost: CostModel
    rng: np.random.Generator
    budget: Budget
    evaluate: Callable[[Program], Evaluation | None]
    remaining_trials: Callable[[], int]
    out_of_time: Callable[[], bool]
    history: list[Candidate] = field(default_factory=list)
    """every evaluated program, in order; filled by `evaluate`"""
    decided: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """by IR key, the answers (value by question key, in order) that a program was made with; agents
    that decide fill it before they ask `evaluate`, so that records show their choices"""


class Agent(Protocol):
    """Anything that searches. The caller picks and re-verifies the best of `search.history`."""

    @property
    def name(self) -> str:
        """Name on the board."""

    def run(self, search: Search) -> None:
        """Spend the budget; returns when `evaluate` answers None or nothing is left to try."""
