"""`agreement`: whether two runs of a board say the same: verified speedups side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.errors import InvalidValueError

__all__ = ["Agreement", "agreement", "agreements", "by_seed"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One agent at one trial count in two runs."""

    agent: str
    trials: int
    ratios: tuple[tuple[str, float], ...]
    """workload and verified speedup in the second run / in the first, geometric means over seeds; the
    workloads where every answer of both is verified"""
    left_out: int
    """workloads of both where one is not"""
    overall: float
    """geometric mean of `ratios`"""

    def within(self, share: float) -> int:
        """Workloads where the larger speedup is at most `share` above the smaller."""
        return sum(abs(math.log(ratio)) <= math.log1p(share) for _, ratio in self.ratios)

    @property
    def worst(self) -> tuple[str, float]:
        """The workload that differs most."""
        return max(self.ratios, key=lambda each: abs(math.log(each[1])))

    def to_dict(self, share: float) -> dict[str, Any]:
        """JSON values."""
        return {
            "agent": self.agent,
            "trials": self.trials,
            "workloads": len(self.ratios),
            "within": self.within(share),
            "left_out": self.left_out,
            "overall": self.overall,
            "ratios": dict(self.ratios),
        }


def agreement(first: Board, second: Board, agent: str, trials: int) -> Agreement | None:
    """None for an agent without a workload whose answers are verified in both.

    An answer below 1 counts 1, as in the ranking.
    """
    ratios: list[tuple[str, float]] = []
    common = [uri for uri in first.plan.workloads if uri in second.plan.workloads]
    for uri in common:
        means = [_mean(board, agent, uri, trials) for board in (first, second)]
        if all(math.isfinite(mean) for mean in means):
            ratios.append((uri, means[1] / means[0]))
    if not ratios:
        return None
    overall = statistics.geometric_mean(ratio for _, ratio in ratios)
    return Agreement(agent, trials, tuple(ratios), len(common) - len(ratios), overall)


def agreements(first: Board, second: Board) -> list[Agreement]:
    """Every agent and trial count of both.

    Raises InvalidValueError for boards of two machines or targets, whose speedups need not agree, and for
    those that have nothing verified in common.
    """
    one, other = (_conditions(board) for board in (first, second))
    if one != other:
        accepted = "two runs on one machine for one target"
        raise InvalidValueError("boards to compare", f"{one} and {other}", accepted)
    found = [
        made
        for trials in first.plan.trials
        if trials in second.plan.trials
        for agent in first.players()
        if agent in second.plan.agents
        and (made := agreement(first, second, agent, trials)) is not None
    ]
    if not found:
        accepted = "runs with an agent, a workload and a trial count in common, both verified"
        raise InvalidValueError("boards to compare", "nothing in common", accepted)
    return found


def by_seed(board: Board) -> Iterator[tuple[str, tuple[Board, Board]]]:
    """Each two seeds of a board, as two runs, with a name such as "0 and 1"."""
    for first, second in combinations(board.plan.seeds, 2):
        one, other = (
            replace(board, plan=replace(board.plan, seeds=(seed,))) for seed in (first, second)
        )
        yield f"{first} and {second}", (one, other)


def _mean(board: Board, agent: str, uri: str, trials: int) -> float:
    cells = [board.cell(agent, uri, seed, trials) for seed in board.plan.seeds]
    speedups = [math.nan if c.speedup is None else max(1.0, c.speedup) for c in cells]
    return statistics.geometric_mean(speedups)


def _conditions(board: Board) -> str:
    record = board.records[0]
    return f"{record.machine.cpu} ({record.machine.fingerprint}) for {record.target}"
