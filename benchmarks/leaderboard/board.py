"""`Board`: records and verdicts of one plan, and the matrices that statistics are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tirgym.benchmarks.leaderboard.folder import Plan
from tirgym.benchmarks.leaderboard.record import Kind, Record
from tirgym.benchmarks.leaderboard.shipped import Shipped
from tirgym.benchmarks.leaderboard.statistics import Scores
from tirgym.benchmarks.leaderboard.verdicts import Standing, Verified

__all__ = ["Board", "Matrix"]


@dataclass(frozen=True)
class Matrix:
    """Verdicts of one agent at one trial count, shape (seeds, workloads)."""

    cells: Sequence[Sequence[Verified]]

    @property
    def flat(self) -> list[Verified]:
        """All of them."""
        return [cell for row in self.cells for cell in row]

    @property
    def speedups(self) -> Scores:
        """Verified speedups, NaN without one, 1 where a reference does not apply."""
        return np.array([[_number(cell) for cell in row] for row in self.cells], dtype=np.float64)

    @property
    def measured(self) -> Scores:
        """Verified speedups, NaN without one."""
        values = [[np.nan if c.speedup is None else c.speedup for c in row] for row in self.cells]
        return np.array(values, dtype=np.float64)

    @property
    def applies(self) -> NDArray[np.bool_]:
        """For each workload, whether the row has something for it."""
        columns = zip(*self.cells, strict=True)
        away = [any(c.standing is Standing.NOT_APPLICABLE for c in column) for column in columns]
        return ~np.array(away, dtype=np.bool_)

    @property
    def shared(self) -> bool:
        """Whether all seeds gave the same answers, each of which was measured once for all of them."""
        columns = [{cell.sessions for cell in column} for column in zip(*self.cells, strict=True)]
        measured = [found for found in columns if found != {()}]
        return bool(measured) and all(len(found) == 1 for found in columns)

    def count(self, standing: Standing) -> int:
        """Answers that stand so."""
        return sum(cell.standing is standing for cell in self.flat)


def _number(cell: Verified) -> float:
    if cell.standing is Standing.NOT_APPLICABLE:
        return 1.0
    return float("nan") if cell.speedup is None else cell.speedup


@dataclass(frozen=True)
class Board:
    """What a board is made of. The product of the plan is the denominator, whatever is missing."""

    plan: Plan
    records: Sequence[Record]
    verified: Sequence[Verified]
    sessions: int
    problems: Sequence[str] = ()
    shipped: Sequence[Shipped] = ()
    foreign: int = 0
    """verdicts that this installation did not make"""
    concurrent: int = 0
    """other processes of the verification at the same time, at most"""

    @cached_property
    def _verdicts(self) -> Mapping[tuple[str, str, int, int], Verified]:
        return {verdict.key: verdict for verdict in self.verified}

    @cached_property
    def _runs(self) -> Mapping[tuple[str, str, int], Record]:
        return {record.key: record for record in self.records}

    @cached_property
    def _kinds(self) -> Mapping[str, Kind]:
        return {record.agent: record.kind for record in reversed(self.records)}

    def cell(self, agent: str, uri: str, seed: int, trials: int) -> Verified:
        """The verdict on one answer; MISSING without a record, UNMEASURED without a verdict."""
        found = self._verdicts.get((agent, uri, seed, trials))
        if found is not None:
            return found
        if (agent, uri, seed) in self._runs:
            text = "not verified yet: tirgym bench verify"
            return Verified(agent, uri, seed, trials, Standing.UNMEASURED, text)
        return Verified(agent, uri, seed, trials, Standing.MISSING, "there is no record")

    def cells(self) -> Iterator[Verified]:
        """Every answer that the plan asks for."""
        for agent, uri, seed in self.plan.rows():
            for trials in self.plan.trials:
                yield self.cell(agent, uri, seed, trials)

    def record(self, agent: str, uri: str, seed: int) -> Record | None:
        """The record of one run."""
        return self._runs.get((agent, uri, seed))

    def matrix(self, agent: str, trials: int) -> Matrix:
        """Verdicts of one agent, seeds by workloads."""
        plan = self.plan
        return Matrix(
            [[self.cell(agent, uri, seed, trials) for uri in plan.workloads] for seed in plan.seeds]
        )

    def kind(self, agent: str) -> Kind:
        """What the row is."""
        return self._kinds.get(agent, Kind.AGENT)

    def players(self) -> tuple[str, ...]:
        """Every row but the control."""
        return tuple(name for name in self.plan.agents if self.kind(name) is not Kind.CONTROL)
