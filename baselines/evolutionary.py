"""Evolution over the decision space: answers to the compiler's own questions mutate and cross.

    tirgym optimize matmul --agent evolutionary --trials 64 --seed 0

An individual is a set of answers (`Walk.finish`), so every one is a legal program. Each round
breeds a few generations that nobody measures: random samples of the space, mutations of the
fittest, and crossings that take each block's answers from one of two parents. Fitness is the static
cost, corrected by what was measured on this kernel (`surrogate.py`). A batch of those that promise
most is then measured, a few at random among them, and the fastest are parents of the next round.
After Zheng et al., "Ansor" (OSDI 2020, section 5), and MetaSchedule's evolutionary search.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.baselines.surrogate import Vector, pick, posterior
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.decisions import Question, Walk, design_space
from tirgym.harness.decisions.walk import nearest
from tirgym.harness.program import Program
from tirgym.spaces.features import features
from tirgym.spaces.graph import encoder_for

__all__ = ["Args", "EvolutionaryAgent"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the evolutionary agent; all are counts and shares, so a seed fixes the search."""

    population: int = 32
    """programs in each generation"""
    answers: int = 20
    """questions of a kernel beyond which fewer are bred, so that breeding takes as long on each"""
    generations: int = 3
    """generations bred between two batches"""
    samples: int = 64
    """random samples of the space before the first batch"""
    batch: int = 8
    """programs measured after each breeding"""
    explore: float = 0.15
    """share of a batch that goes to chance"""
    elite: int = 8
    """fastest programs that are always among the parents"""
    fresh: float = 0.25
    """share of each generation that is sampled anew"""
    cross: float = 0.35
    """share of the others that have two parents"""
    courage: float = 0.7
    """standard deviations of doubt that speak for measuring a program"""
    pool: int = 300
    """programs remembered for a later batch"""
    patience: int = 0
    """batches in a row without a gain of `gain` before the agent stops early; 0: never"""
    gain: float = 0.05
    """relative gain that counts"""
    fruitless: int = 8
    """batches in a row without anything new to measure before the agent gives up"""
    prefixes: int = 1500
    """half-way states that are kept, so that relatives need not be built from the start"""


_COUNTS = ("population", "answers", "generations", "samples", "batch", "elite", "fruitless")


@dataclass(slots=True)
class _Individual:
    """A finished walk; times are natural logarithms of µs."""

    program: Program
    values: Mapping[str, int]
    """answers by question key"""
    predicted: float
    vector: Vector
    expected: float


class EvolutionaryAgent:
    """Evolutionary search over the open choices of the compiler, guided by static cost."""

    name = "evolutionary"

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        for field in _COUNTS:
            if getattr(args, field) < 1:
                raise InvalidValueError(
                    f"{field} of agent evolutionary", getattr(args, field), "at least 1"
                )
        for field in ("explore", "fresh", "cross"):
            if not 0.0 <= getattr(args, field) <= 1.0:
                raise InvalidValueError(
                    f"{field} of agent evolutionary", getattr(args, field), "0 to 1"
                )

    def run(self, search: Search) -> None:
        """Spend the budget; raises UnknownNameError for a backend without a design space."""
        _Run(self.args, search).play()


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search) -> None:
        self.args, self.search, self.rng = args, search, search.rng
        self.encoder = encoder_for(search.start.dialect)
        self.root = design_space(search.start)
        self.walks: OrderedDict[tuple[int, ...], Walk] = OrderedDict()
        self.seen: dict[str, _Individual] = {}
        """every individual by IR key"""
        self.pool: dict[str, _Individual] = {}
        """those worth measuring that were not measured yet"""
        self.known: list[tuple[_Individual, float]] = []
        """measured ones with their time"""
        self.naive = 0.0
        self.share = 1.0
        """of the population and samples that are bred"""

    def play(self) -> None:
        """Breed and measure until the budget is spent or nothing new turns up."""
        evaluation = self.search.evaluate(self.search.start)
        if evaluation is None:
            return
        if evaluation.measurement is not None:
            self.naive = math.log(evaluation.measurement.latency_us)
        static = self._build(lambda question: question.default)
        self.seen[static.program.ir_key] = static
        self.share = min(1.0, self.args.answers / max(1, len(static.values)))
        if not self._measure([static]):
            return
        for _ in range(max(1, round(self.share * self.args.samples))):
            self._join(self._sample())
            if self.search.out_of_time():
                return
        fruitless = stale = 0
        best = self._best()
        while fruitless < self.args.fruitless and not self.search.out_of_time():
            for _ in range(self.args.generations):
                self._breed()
            batch = self._batch()
            fruitless = 0 if batch else fruitless + 1
            if not self._measure(batch):
                return
            stale = 0 if self._best() < best - math.log1p(self.args.gain) else stale + 1
            best = self._best() if stale == 0 else best
            if 0 < self.args.patience <= stale:
                return

    # -- individuals ------------------------------------------------------------------------

    def _build(self, choose: Callable[[Question], int]) -> _Individual:
        """The individual whose answers `choose` gives; half-way states are shared."""
        walk = self.root
        path: tuple[int, ...] = ()
        while walk.question is not None:
            option = choose(walk.question)
            path = (*path, option)
            following = self.walks.get(path)
            if following is None:
                following = self.walks[path] = walk.answer(option)
                if len(self.walks) > self.args.prefixes:
                    self.walks.popitem(last=False)
            else:
                self.walks.move_to_end(path)
            walk = following
        known = self.seen.get(walk.program.ir_key)
        if known is not None:
            return known
        predicted = math.log(self.search.cost.predict_us(walk.program))
        graph = self.encoder.encode(walk.program)
        vector = np.append(features(graph).astype(np.float64), round(predicted, 6))
        values = {answer.key: answer.value for answer in walk.answers}
        return _Individual(walk.program, values, predicted, vector, predicted)

    def _join(self, individual: _Individual) -> None:
        """Take a new individual into the pool."""
        key = individual.program.ir_key
        if key not in self.seen:
            self.seen[key] = self.pool[key] = individual

    def _sample(self) -> _Individual:
        """A random individual that keeps the static choice of a random share of the questions."""
        kept = float(self.rng.choice((0.0, 0.4, 0.7, 0.9)))

        def choose(question: Question) -> int:
            if self.rng.random() < kept:
                return question.default
            return int(self.rng.integers(len(question.options)))

        return self._build(choose)

    def _mutant(self, parent: _Individual) -> _Individual:
        """About two answers differ from the parent's; half of them by one place."""
        rate = min(1.0, float(self.rng.choice((1.0, 2.0, 4.0))) / max(1, len(parent.values)))

        def choose(question: Question) -> int:
            wanted = parent.values.get(question.key)
            option = question.default if wanted is None else nearest(question, wanted)
            number = len(question.options)
            if self.rng.random() >= rate:
                return option
            if self.rng.random() < 0.5:
                step = 1 if self.rng.random() < 0.5 else -1
                return min(max(option + step, 0), number - 1)
            return int(self.rng.integers(number))

        return self._build(choose)

    def _crossing(self, mother: _Individual, father: _Individual) -> _Individual:
        """Each block is decided as in one of the parents."""
        parents: dict[str, Mapping[str, int]] = {}

        def choose(question: Question) -> int:
            block = question.key.split(".")[0]
            if block not in parents:
                parents[block] = (mother if self.rng.random() < 0.5 else father).values
            wanted = parents[block].get(question.key)
            if wanted is None:
                wanted = mother.values.get(question.key, father.values.get(question.key))
            return question.default if wanted is None else nearest(question, wanted)

        return self._build(choose)

    def _breed(self) -> None:
        """One generation; newcomers join the pool."""
        args, rng = self.args, self.rng
        parents = self._parents()
        for _ in range(max(1, round(self.share * args.population))):
            if self.search.out_of_time():
                return
            if rng.random() < args.fresh:
                self._join(self._sample())
                continue
            # the first are the fittest: a quadratic law prefers them
            first = parents[int(len(parents) * rng.random() ** 2)]
            if rng.random() < args.cross:
                second = parents[int(rng.integers(len(parents)))]
                self._join(self._crossing(first, second))
            else:
                self._join(self._mutant(first))
        self._appraise()

    def _parents(self) -> list[_Individual]:
        """The fastest of those measured, and the most promising of the others."""
        elite = [individual for individual, _ in self._ranked()[: self.args.elite]]
        others = sorted(self.pool.values(), key=_rank)[: self.args.population]
        return elite + others

    # -- fitness ----------------------------------------------------------------------------

    def _appraise(self) -> None:
        """Correct what is expected of the most promising part of the pool by what was measured."""
        ranked = sorted(self.pool.values(), key=lambda i: (i.expected, i.program.ir_key))
        self.pool = {i.program.ir_key: i for i in ranked[: self.args.pool]}
        asked = list(self.pool.values())
        if asked:
            mean, _ = self._posterior(asked)
            for individual, correction in zip(asked, mean, strict=True):
                individual.expected = individual.predicted + float(correction)

    def _posterior(self, asked: list[_Individual]) -> tuple[Vector, Vector]:
        rows = np.array([individual.vector for individual in asked])
        known = np.array([individual.vector for individual, _ in self.known])
        residuals = np.array([time - individual.predicted for individual, time in self.known])
        return posterior(rows, known.reshape(-1, rows.shape[1]), residuals)

    def _batch(self) -> list[_Individual]:
        """What to measure next: the most promising that differ, and a few by chance."""
        twins = {individual.vector.tobytes() for individual, _ in self.known}
        asked: list[_Individual] = []
        for individual in sorted(self.pool.values(), key=_rank):
            if individual.vector.tobytes() not in twins:
                twins.add(individual.vector.tobytes())
                asked.append(individual)
        if not asked:
            return []
        lucky = min(round(self.args.batch * self.args.explore), len(asked) - 1)
        front = asked[: 8 * self.args.batch]
        _, covariance = self._posterior(front)
        expected = np.array([individual.expected for individual in front])
        places = pick(expected, covariance, self.args.batch - lucky, self.args.courage)
        batch = [front[i] for i in places]
        rest = [i for i in asked if i not in batch]
        if rest and lucky:
            drawn = self.rng.choice(len(rest), size=min(lucky, len(rest)), replace=False)
            batch += [rest[i] for i in sorted(drawn)]
        for individual in batch:
            del self.pool[individual.program.ir_key]
        return batch

    def _measure(self, individuals: list[_Individual]) -> bool:
        """Ask the evaluator; False once the budget is spent.

        What did not pass is held for no faster than the unscheduled program.
        """
        for individual in individuals:
            self.search.decided[individual.program.ir_key] = individual.values
        answers = self.search.evaluate_many([individual.program for individual in individuals])
        answered = 0
        for individual, evaluation in zip(individuals, answers, strict=False):
            speedup = evaluation.speedup or 1.0 / (evaluation.slowdown_limit or 1.0)
            self.known.append((individual, self.naive - math.log(speedup)))
            answered += 1
        return answered == len(individuals)

    def _ranked(self) -> list[tuple[_Individual, float]]:
        return sorted(self.known, key=lambda item: (item[1], *_rank(item[0])))

    def _best(self) -> float:
        return min(time for _, time in self.known)


def _rank(individual: _Individual) -> tuple[float, int, str]:
    """Sort key: expected time, then fewer steps, then IR key."""
    return individual.expected, len(individual.program.steps), individual.program.ir_key
