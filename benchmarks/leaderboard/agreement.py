"""`agreement`: whether two runs of a board say the same: verified speedups side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from tirgym.benchmarks.leaderboard.board import Board
from tirgym.benchmarks.leaderboard.verdicts import Verified
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
    one_sided: int
    """workloads where that holds of one alone: they do not agree"""
    left_out: int
    """workloads where it holds of neither, and where both are the same measurement"""
    overall: float
    """geometric mean of `ratios`"""

    def within(self, share: float) -> int:
        """Workloads where the larger speedup is at most `share` above the smaller."""
        return sum(abs(math.log(ratio)) <= math.log1p(share) for _, ratio in self.ratios)

    @property
    def workloads(self) -> int:
        """Those that can agree."""
        return len(self.ratios) + self.one_sided

    @property
    def worst(self) -> tuple[str, float]:
        """The workload that differs most."""
        return max(self.ratios, key=lambda each: abs(math.log(each[1])))

    def to_dict(self, share: float) -> dict[str, Any]:
        """JSON values."""
        return {
            "agent": self.agent,
            "trials": self.trials,
            "workloads": self.workloads,
            "within": self.within(share),
            "one_sided": self.one_sided,
            "left_out": self.left_out,
            "overall": self.overall,
            "ratios": dict(self.ratios),
        }


def agreement(first: Board, second: Board, agent: str, trials: int) -> Agreement | None:
    """None for an agent without a workload whose answers are verified in both by measurements of their own.

    Equal answers of one board are measured once: two seeds that share them say nothing of each other.
    """
    ratios: list[tuple[str, float]] = []
    one_sided = 0
    common = [uri for uri in first.plan.workloads if uri in second.plan.workloads]
    for uri in common:
        one, other = (_cells(board, agent, uri, trials) for board in (first, second))
        if _sessions(one) and _sessions(one) == _sessions(other):
            continue
        means = [_mean(cells) for cells in (one, other)]
        finite = [math.isfinite(mean) for mean in means]
        if all(finite):
            ratios.append((uri, means[1] / means[0]))
        one_sided += sum(finite) == 1
    if not ratios:
        return None
    overall = statistics.geometric_mean(ratio for _, ratio in ratios)
    left_out = len(common) - len(ratios) - one_sided
    return Agreement(agent, trials, tuple(ratios), one_sided, left_out, overall)


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


def _cells(board: Board, agent: str, uri: str, trials: int) -> list[Verified]:
    return [board.cell(agent, uri, seed, trials) for seed in board.plan.seeds]


def _sessions(cells: Sequence[Verified]) -> list[tuple[float, ...]]:
    return [cell.sessions for cell in cells if cell.sessions]


def _mean(cells: Sequence[Verified]) -> float:
    """NaN unless all are verified."""
    return statistics.geometric_mean(
        math.nan if cell.speedup is None else cell.speedup for cell in cells
    )


def _conditions(board: Board) -> str:
    record = board.records[0]
    return f"{record.machine.cpu} ({record.machine.fingerprint}) for {record.target}"
