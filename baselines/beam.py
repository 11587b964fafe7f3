"""Beam search: the static cost looks at many programs, the budget is spent on few of them.

    tirgym optimize matmul --agent beam --trials 64 --seed 0

Each round runs a beam that measures nothing: from the seeds, random moves (`moves.py`) are applied,
and at each depth the programs that promise most are kept. The most promising of all that were seen
are then measured. What was measured teaches a surrogate (`surrogate.py`) where the static cost is
wrong on this kernel, and the fastest programs become seeds of the next round, together with
mutations of their steps. So the model proposes and the machine decides: cost-guided search with
measured rounds as in Zheng et al., "Ansor" (OSDI 2020), batches picked by confidence bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.baselines.moves import Habits, moves, mutations
from tirgym.baselines.surrogate import Vector, pick, posterior
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.macros import SCHEDULE_VOCABULARIES
from tirgym.harness.program import Program
from tirgym.spaces.features import features
from tirgym.spaces.graph import encoder_for

__all__ = ["Args", "BeamAgent"]

HELPED = 0.005
"""A move helped when it lowers the log of the predicted time by this."""


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the beam agent; all are counts, so that a seed fixes what is proposed."""

    width: int = 12
    """programs kept at each depth"""
    depth: int = 12
    """moves between a seed and the last programs of a beam"""
    samples: int = 14
    """moves tried on each program"""
    batch: int = 8
    """programs measured after each beam"""
    explore: float = 0.25
    """share of the places in a beam that go to chance"""
    afresh: float = 0.4
    """share of the rounds that start from the unscheduled program again"""
    preselect: int = 5
    """programs that the surrogate is asked about for each one that is kept or measured"""
    crowd: int = 2
    """programs among them whose expected times differ by less than 2 %"""
    pool: int = 400
    """programs remembered for a later batch"""
    evidence: int = 160
    """fastest measured programs that the surrogate learns from; its work grows with the cube"""
    courage: float = 1.0
    """standard deviations of doubt that speak for measuring a program"""
    elite: int = 6
    """fastest programs that seed the next round"""
    polish: int = 4
    """depth of a round that starts from the fastest programs"""
    patience: int = 3
    """depths in a row without a better prediction before a beam ends"""
    fruitless: int = 6
    """rounds in a row without anything new to measure before the agent gives up"""


@dataclass(slots=True)
class _Node:
    """A program in the search; times are natural logarithms of µs."""

    program: Program
    predicted: float
    correction: float
    """what the surrogate adds to `predicted`; until asked, what it added at the parent"""
    features: Vector | None = None

    @property
    def expected(self) -> float:
        """What the program is thought to take."""
        return self.predicted + self.correction


class BeamAgent:
    """Beams guided by static cost, corrected by what was measured."""

    name = "beam"
    spaces = SCHEDULE_VOCABULARIES
    """action tables that the agent plays: the one of the search"""

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        for field in ("width", "depth", "samples", "batch", "elite", "polish", "fruitless"):
            if getattr(args, field) < 1:
                raise InvalidValueError(
                    f"{field} of agent beam", getattr(args, field), "at least 1"
                )
        if not 0.0 <= args.explore <= 1.0:
            raise InvalidValueError("explore of agent beam", args.explore, "0 to 1")

    def run(self, search: Search) -> None:
        """Spend the budget.

        Raises InvalidValueError where a static cost takes a compilation: beams ask for thousands.
        """
        if getattr(search.cost, "compiles", False):
            accepted = "greedy or random: a beam predicts thousands of programs, each compiled here"
            raise InvalidValueError(f"agent for {search.start.target}", self.name, accepted)
        _Run(self.args, search).play()


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search) -> None:
        self.args, self.search, self.rng = args, search, search.rng
        self.encoder = encoder_for(search.start.dialect)
        self.known: dict[str, tuple[_Node, float]] = {}
        """measured programs by IR key, with their time"""
        self.pool: dict[str, _Node] = {}
        """programs worth measuring that were not measured yet"""
        self.predictions: dict[str, float] = {}
        self.habits = Habits()
        self.naive = 0.0

    def play(self) -> None:
        """Rounds of beam and batch until the budget is spent or nothing new turns up."""
        start = self._node(self.search.start, None)
        if not self._measure([start]):
            return
        fruitless = 0
        while fruitless < self.args.fruitless and not self.search.out_of_time():
            afresh = len(self.known) <= self.args.elite or self.rng.random() < self.args.afresh
            if afresh:
                self._beam([start], self.args.depth, mutating=False)
            else:
                self._beam(self._elite(), self.args.polish, mutating=True)
            batch = self._batch()
            fruitless = 0 if batch else fruitless + 1
            if not self._measure(batch):
                return

    # -- the beam ---------------------------------------------------------------------------

    def _beam(self, seeds: list[_Node], depth: int, mutating: bool) -> None:
        """Explore from `seeds` by prediction alone; what was kept at any depth joins the pool."""
        frontier = seeds
        seen = {node.program.ir_key for node in seeds}
        best, stale = math.inf, 0
        for _ in range(depth):
            children: list[_Node] = []
            for node in frontier:
                children += self._children(node, mutating, seen)
                if self.search.out_of_time():
                    return
            if not children:
                return
            frontier = self._keep([*children, *frontier])
            now = min(node.expected for node in frontier)
            best, stale = min(best, now), 0 if now < best - HELPED else stale + 1
            if stale > self.args.patience:
                return
            for node in frontier:
                if node.program.ir_key not in self.known:
                    self.pool[node.program.ir_key] = node

    def _children(self, parent: _Node, mutating: bool, seen: set[str]) -> list[_Node]:
        """New programs one move, or when `mutating` one change of a step, away from `parent`."""
        vocabulary, rng, number = self.search.vocabulary, self.rng, self.args.samples
        children: list[_Node] = []
        if mutating:
            number //= 2
            for program in mutations(
                parent.program, self.search.start, vocabulary, rng, (number + 1) // 2
            ):
                if program.ir_key not in seen:
                    seen.add(program.ir_key)
                    children.append(self._node(program, parent))
        for kind, program in moves(parent.program, vocabulary, rng, number, self.habits):
            new = program.ir_key not in seen
            if new:
                seen.add(program.ir_key)
                children.append(self._node(program, parent))
            self.habits.note(kind, new and children[-1].predicted < parent.predicted - HELPED)
        return children

    def _keep(self, nodes: list[_Node]) -> list[_Node]:
        """The next frontier: the most promising that differ, the rest by chance."""
        nodes = sorted(nodes, key=_rank)
        lucky = round(self.args.width * self.args.explore)
        best, rest = self._promising(nodes, self.args.width - lucky)
        if rest and lucky:
            drawn = self.rng.choice(len(rest), size=min(lucky, len(rest)), replace=False)
            best += [rest[i] for i in sorted(drawn)]
        return best

    # -- measuring --------------------------------------------------------------------------

    def _batch(self) -> list[_Node]:
        """What to measure: the most promising programs that differ, none that looks like another."""
        twins = {self._features(node).tobytes() for node, _ in self.known.values()}
        nodes: list[_Node] = []
        for node in sorted(self.pool.values(), key=_rank):
            features = self._features(node).tobytes()
            if features not in twins and len(nodes) < self.args.pool:
                twins.add(features)
                nodes.append(node)
        batch, rest = self._promising(nodes, self.args.batch)
        self.pool = {node.program.ir_key: node for node in rest}
        return batch

    def _promising(self, nodes: list[_Node], number: int) -> tuple[list[_Node], list[_Node]]:
        """The `number` of the best `nodes` that promise most, and all others."""
        asked, others = _spread(nodes, self.args.preselect * number, self.args.crowd)
        if not asked:
            return [], nodes
        rows = np.array([self._features(node) for node in asked])
        measured = sorted(self.known.values(), key=lambda item: (item[1], *_rank(item[0])))
        measured = measured[: self.args.evidence]
        known = np.array([self._features(node) for node, _ in measured]).reshape(-1, rows.shape[1])
        residuals = np.array([time - node.predicted for node, time in measured])
        mean, covariance = posterior(rows, known, residuals)
        for node, correction in zip(asked, mean, strict=True):
            node.correction = float(correction)
        predicted = np.array([node.predicted for node in asked])
        picked = pick(predicted + mean, covariance, number, self.args.courage)
        chosen = set(picked)
        rest = [node for i, node in enumerate(asked) if i not in chosen] + others
        return [asked[i] for i in picked], rest

    def _measure(self, nodes: list[_Node]) -> bool:
        """Ask the evaluator; False once the budget is spent.

        Times are taken as naive time over speedup, so that a machine that changes its pace moves
        no program against another. What did not pass is held for no faster than the unscheduled
        program, so that its surroundings lose their attraction.
        """
        answered = 0
        programs = [node.program for node in nodes]
        for node, evaluation in zip(nodes, self.search.evaluate_many(programs), strict=False):
            if not self.known and evaluation.measurement is not None:
                self.naive = math.log(evaluation.measurement.latency_us)
            speedup = evaluation.speedup or 1.0 / (evaluation.slowdown_limit or 1.0)
            self.known[node.program.ir_key] = (node, self.naive - math.log(speedup))
            answered += 1
        return answered == len(nodes)

    def _elite(self) -> list[_Node]:
        """The fastest programs, each machine code once."""
        ranked = sorted(self.known.values(), key=lambda item: (item[1], *_rank(item[0])))
        times: dict[float, _Node] = {}
        for node, time in ranked:
            times.setdefault(time, node)
        return list(times.values())[: self.args.elite]

    # -- nodes ------------------------------------------------------------------------------

    def _node(self, program: Program, parent: _Node | None) -> _Node:
        key = program.ir_key
        if key in self.known:
            return self.known[key][0]
        if key not in self.predictions:
            self.predictions[key] = math.log(self.search.cost.predict_us(program))
        return _Node(program, self.predictions[key], parent.correction if parent else 0.0)

    def _features(self, node: _Node) -> Vector:
        if node.features is None:
            vector = features(self.encoder.encode(node.program)).astype(np.float64)
            node.features = np.append(vector, round(node.predicted, 6))
        return node.features


def _rank(node: _Node) -> tuple[float, int, str]:
    """Sort key: expected time, then fewer steps, then IR key."""
    return (node.expected, len(node.program.steps), node.program.ir_key)


def _spread(ranked: list[_Node], number: int, crowd: int) -> tuple[list[_Node], list[_Node]]:
    """The first `number` of `ranked` with at most `crowd` in each 2 % of time, and all others.

    Programs of nearly equal time are mostly one program in many disguises; they would crowd out
    what is a little slower now and faster later.
    """
    taken: list[_Node] = []
    others: list[_Node] = []
    crowds: dict[int, int] = {}
    for node in ranked:
        place = round(node.expected / 0.02)
        crowds[place] = crowds.get(place, 0) + 1
        if len(taken) < number and crowds[place] <= crowd:
            taken.append(node)
        else:
            others.append(node)
    return taken, others
