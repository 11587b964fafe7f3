"""`Agent`: who plays; `Search`: what it is given; `Budget`: what it may spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program
from tirgym.harness.vocabulary import Vocabulary

__all__ = ["Agent", "Budget", "Candidate", "Search", "measured_speedup"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one run. A trial is one evaluator call with a code key new to the run."""

    trials: int
    seconds: float | None = None
    patience: int | None = None
    """trials in a row without a gain of 5 % after which the run ends; None: it goes on"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program with its verdict."""

    program: Program
    evaluation: Evaluation


def measured_speedup(program: Program, evaluation: Evaluation) -> float:
    """Measured speedup over the unscheduled program, 0 without one."""
    return evaluation.speedup or 0.0


@dataclass
class Search:
    """All that an agent may use. `evaluate` counts trials and answers None once they are spent.

    `evaluate_many` answers for each program in order, as soon as it knows, and ends early once the
    trials are spent. It is faster than one call after the other, and charges the same.
    """

    start: Program
    vocabulary: Vocabulary
    cost: CostModel
    rng: np.random.Generator
    budget: Budget
    evaluate: Callable[[Program], Evaluation | None]
    evaluate_many: Callable[[Sequence[Program]], Iterator[Evaluation]]
    remaining_trials: Callable[[], int]
    out_of_time: Callable[[], bool]
    history: list[Candidate] = field(default_factory=list)
    """every evaluated program, in order; filled by `evaluate` and `evaluate_many`"""
    decided: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """by IR key, the answers (value by question key, in order) that a program was made with; agents
    that decide fill it before they ask `evaluate`, so that records show their choices"""
    worth: Callable[[Program, Evaluation], float] = measured_speedup
    """speedup that the search goes by, 0 for a program that failed: measured; where programs are checked
    without a device and never measured, predicted by `cost`"""


class Agent(Protocol):
    """Anything that searches. The caller picks and re-verifies the best of `search.history`."""

    @property
    def name(self) -> str:
        """Name on the board."""

    def run(self, search: Search) -> None:
        """Spend the budget; returns when `evaluate` answers None or nothing is left to try."""
