"""Evolution of choices: answers to the compiler's own questions, or actions, mutate and cross.

    tirgym optimize matmul --agent evolutionary --trials 64 --seed 0

An individual is a set of answers, so every one is a legal program. Each round breeds a few
generations that nobody measures: random samples of the space, mutations of the fittest, and
crossings that take each block's answers from one of two parents. Fitness is the static cost,
corrected by what was measured on this kernel (`appraisal.py`). A batch of those that promise most
is then measured, a few at random among them, and the fastest are parents of the next round. After
Zheng et al., "Ansor" (OSDI 2020, section 5), and MetaSchedule's evolutionary search.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tirgym.baselines.appraisal import Appraisal, Individual
from tirgym.baselines.choices import (
    SCHEDULE_SPACES,
    Asked,
    Choices,
    begin_choices,
    draw,
    wanted_option,
)
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Search

__all__ = ["Args", "EvolutionaryAgent"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the evolutionary agent; all are counts and shares, so a seed fixes the search."""

    space: str = "decision"
    """decision, primitive, macro or both"""
    depth: int = 16
    """actions of a program at most, where the space is a vocabulary"""
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


_COUNTS = (
    "depth", "population", "answers", "generations", "samples", "batch", "elite", "fruitless",
)  # fmt: skip


class EvolutionaryAgent:
    """Evolutionary search over the open choices of the compiler, guided by static cost."""

    name = "evolutionary"
    spaces = SCHEDULE_SPACES
    """vocabularies that the agent plays, its default first"""

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        if args.space not in SCHEDULE_SPACES:
            raise UnknownNameError("space of agent evolutionary", args.space, SCHEDULE_SPACES)
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
        """Spend the budget; raises UnknownNameError for a space that the backend does not have."""
        _Run(self.args, search).play()


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search) -> None:
        self.args, self.search, self.rng = args, search, search.rng
        self.appraisal = Appraisal(search, args.pool, args.space == "decision")
        self.root = begin_choices(search, args.space, args.depth)
        self.walks: OrderedDict[tuple[int, ...], Choices] = OrderedDict()
        self.share = 1.0
        """of the population and samples that are bred"""

    def play(self) -> None:
        """Breed and measure until the budget is spent or nothing new turns up."""
        args, appraisal = self.args, self.appraisal
        if not appraisal.begin():
            return
        static = self._build(lambda question: question.default)
        self.share = min(1.0, args.answers / max(1, len(static.values)))
        if not appraisal.measure([static]):
            return
        for _ in range(max(1, round(self.share * args.samples))):
            self._sample()
            if self.search.out_of_time():
                return
        fruitless = stale = 0
        best = appraisal.fastest()
        while fruitless < args.fruitless and not self.search.out_of_time():
            for _ in range(args.generations):
                self._breed()
            batch = appraisal.batch(args.batch, args.explore, args.courage)
            fruitless = 0 if batch else fruitless + 1
            if not appraisal.measure(batch):
                return
            stale = 0 if appraisal.fastest() < best - math.log1p(args.gain) else stale + 1
            best = appraisal.fastest() if stale == 0 else best
            if 0 < args.patience <= stale:
                return

    def _build(self, choose: Callable[[Asked], int]) -> Individual:
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
        values = {answer.key: answer.value for answer in walk.answers}
        return self.appraisal.individual(walk.program, values)

    def _sample(self) -> Individual:
        """A random individual that keeps the static choice of a random share of the questions."""
        kept = float(self.rng.choice((0.0, 0.4, 0.7, 0.9)))

        def choose(question: Asked) -> int:
            return question.default if self.rng.random() < kept else draw(question, self.rng)

        return self._build(choose)

    def _mutant(self, parent: Individual) -> Individual:
        """About two answers differ from the parent's; half of them by one place."""
        rate = min(1.0, float(self.rng.choice((1.0, 2.0, 4.0))) / max(1, len(parent.values)))

        def choose(question: Asked) -> int:
            option = wanted_option(question, parent.values)
            if self.rng.random() >= rate:
                return option
            if self.rng.random() < 0.5:
                step = 1 if self.rng.random() < 0.5 else -1
                return min(max(option + step, 0), len(question.options) - 1)
            return draw(question, self.rng)

        return self._build(choose)

    def _crossing(self, mother: Individual, father: Individual) -> Individual:
        """Each block is decided as in one of the parents."""
        parents: dict[str, Mapping[str, int]] = {}

        def choose(question: Asked) -> int:
            block = question.key.split(".")[0]
            if block not in parents:
                parents[block] = (mother if self.rng.random() < 0.5 else father).values
            for values in (parents[block], mother.values, father.values):
                if question.key in values:
                    return wanted_option(question, values)
            return question.default

        return self._build(choose)

    def _breed(self) -> None:
        """One generation."""
        args, rng = self.args, self.rng
        parents = self._parents()
        for _ in range(max(1, round(self.share * args.population))):
            if self.search.out_of_time():
                return
            if rng.random() < args.fresh:
                self._sample()
                continue
            # the first are the fittest: a quadratic law prefers them
            first = parents[int(len(parents) * rng.random() ** 2)]
            if rng.random() < args.cross:
                self._crossing(first, parents[int(rng.integers(len(parents)))])
            else:
                self._mutant(first)
        self.appraisal.correct()

    def _parents(self) -> list[Individual]:
        """The fastest of those measured, and the most promising of the others."""
        elite = [individual for individual, _ in self.appraisal.ranked()[: self.args.elite]]
        others = sorted(self.appraisal.waiting.values(), key=lambda individual: individual.rank)
        return elite + others[: self.args.population]
