"""`Appraisal`: what a search thinks of the programs it met, and which of them it measures.

Programs are valued by the static cost, corrected by what was measured on this kernel
(`surrogate.py`); measured trials go in batches to those that promise most and to a few by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tirgym.baselines.surrogate import Vector, pick, posterior, posterior_mean
from tirgym.harness.agent import Search
from tirgym.harness.program import Program
from tirgym.spaces.features import features
from tirgym.spaces.graph import encoder_for

__all__ = ["Appraisal", "Individual"]

FRONT = 8
"""Programs among which each one of a batch is picked."""


@dataclass(slots=True, eq=False)
class Individual:
    """A finished program; times are natural logarithms of µs."""

    program: Program
    values: Mapping[str, int]
    """the choices that made it, by key"""
    predicted: float
    """by the cost model alone"""
    vector: Vector
    expected: float
    """as predicted, corrected by what was measured"""

    @property
    def rank(self) -> tuple[float, int, str]:
        """Sort key: expected time, then fewer steps, then IR key."""
        return self.expected, len(self.program.steps), self.program.ir_key


class Appraisal:
    """Every program of one run, each once.

    `pool` says how many may wait to be measured, `decides` that choices answer decision points.
    """

    def __init__(self, search: Search, pool: int, decides: bool) -> None:
        self.search, self._pool, self._decides = search, pool, decides
        self._encoder = encoder_for(search.start.dialect)
        self.seen: dict[str, Individual] = {}
        """by IR key"""
        self.waiting: dict[str, Individual] = {}
        """those worth measuring that were not measured yet, by IR key"""
        self.measured: list[tuple[Individual, float]] = []
        """with their time"""
        self.naive = 0.0

    def begin(self) -> bool:
        """Ask for the unscheduled program, which costs no trial; False once the budget is spent."""
        evaluation = self.search.evaluate(self.search.start)
        if evaluation is None:
            return False
        if evaluation.measurement is not None:
            self.naive = math.log(evaluation.measurement.latency_us)
        else:
            self.naive = math.log(self.search.cost.predict_us(self.search.start))
        return True

    def individual(self, program: Program, values: Mapping[str, int]) -> Individual:
        """The individual of `program`, which then waits to be measured if it is new."""
        key = program.ir_key
        known = self.seen.get(key)
        if known is not None:
            return known
        predicted = math.log(self.search.cost.predict_us(program))
        vector = features(self._encoder.encode(program)).astype(np.float64)
        vector = np.append(vector, round(predicted, 6))
        made = Individual(program, values, predicted, vector, predicted)
        self.seen[key] = self.waiting[key] = made
        return made

    def correct(self) -> None:
        """Learn from what was measured what is to be expected of all others."""
        known, residuals = self._evidence()
        everyone = list(self.seen.values())
        if not len(known) or not everyone:
            return
        rows = np.array([individual.vector for individual in everyone])
        for individual, residual in zip(
            everyone, posterior_mean(rows, known, residuals), strict=True
        ):
            individual.expected = individual.predicted + float(residual)
        ranked = sorted(self.waiting.values(), key=lambda i: i.rank)
        self.waiting = {i.program.ir_key: i for i in ranked[: self._pool]}

    def batch(self, number: int, lucky: float, courage: float) -> list[Individual]:
        """What to measure next: the most promising that differ, a share of `lucky` by chance."""
        twins = {individual.vector.tobytes() for individual, _ in self.measured}
        asked: list[Individual] = []
        for individual in sorted(self.waiting.values(), key=lambda i: i.rank):
            if individual.vector.tobytes() not in twins:
                twins.add(individual.vector.tobytes())
                asked.append(individual)
        if not asked:
            return []
        chance = min(round(number * lucky), len(asked) - 1)
        front = asked[: FRONT * number]
        rows = np.array([individual.vector for individual in front])
        known, residuals = self._evidence()
        mean, covariance = posterior(rows, known.reshape(-1, rows.shape[1]), residuals)
        expected = np.array([individual.predicted for individual in front]) + mean
        batch = [front[i] for i in pick(expected, covariance, number - chance, courage)]
        rest = [individual for individual in asked if individual not in batch]
        if rest and chance:
            drawn = self.search.rng.choice(len(rest), size=min(chance, len(rest)), replace=False)
            batch += [rest[i] for i in sorted(drawn)]
        return batch

    def measure(self, batch: Sequence[Individual]) -> bool:
        """Ask the evaluator for a whole batch; False once the budget is spent.

        What did not pass is held for no faster than the unscheduled program.
        """
        for individual in batch:
            self.waiting.pop(individual.program.ir_key, None)
            if self._decides:
                self.search.decided[individual.program.ir_key] = individual.values
        answers = self.search.evaluate_many([individual.program for individual in batch])
        answered = 0
        for individual, evaluation in zip(batch, answers, strict=False):
            speedup = evaluation.speedup or 1.0 / (evaluation.slowdown_limit or 1.0)
            self.measured.append((individual, self.naive - math.log(speedup)))
            answered += 1
        return answered == len(batch)

    def ranked(self) -> list[tuple[Individual, float]]:
        """Those measured, fastest first."""
        return sorted(self.measured, key=lambda item: (item[1], *item[0].rank))

    def fastest(self) -> float:
        """The best time measured; infinite before."""
        return min((time for _, time in self.measured), default=math.inf)

    def _evidence(self) -> tuple[Vector, Vector]:
        known = np.array([individual.vector for individual, _ in self.measured])
        residuals = np.array([time - individual.predicted for individual, time in self.measured])
        return known, residuals
