"""Monte-Carlo tree search over choices: the compiler's decision points, or an action table.

    tirgym optimize matmul --agent mcts --trials 64 --seed 0
    tirgym optimize matmul --agent mcts --space macro --trials 64 --seed 0

Nodes are programs with the choices that are left; ways that meet are one node (transpositions;
Childs, Brodeur and Kocsis, "Transpositions and move groups in Monte Carlo tree search", 2008). A
simulation goes down by PUCT, which is UCT (Kocsis and Szepesvári, "Bandit based Monte-Carlo
planning", 2006) with a prior (Rosin, "Multi-armed bandits with episode context", 2011; Silver et
al., "Mastering the game of Go without human knowledge", 2017): here the cost model's opinion of the
program that an option leads to when the rest is left to the compiler. Options are opened one by one
as visits grow (progressive widening; Coulom, "Computing Elo ratings of move patterns in the game of
Go", 2007). What it opens is completed by default, or played out from the answers of the best
programs with some of them drawn anew, more often those that did well elsewhere (move-average
sampling; Finnsson and Björnsson, "Simulation-based approach to general game playing", 2008).

No simulation is measured. Values are log-speedups, by the cost model corrected by what was measured
(`appraisal.py`), normalised to the range that is met, and backed up as mean and maximum, since the
best program counts and no opponent plays (Schadd et al., "Single-player Monte-Carlo tree search",
2008; for schedules: Haj-Ali et al., "ProTuner: tuning programs with Monte Carlo tree search", 2020).
Between rounds of simulations a batch of what promises most is measured, and every value is made
anew.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tirgym.baselines.appraisal import Appraisal, Individual
from tirgym.baselines.choices import (
    SCHEDULE_SPACES,
    Asked,
    Choices,
    begin_choices,
    position,
    wanted_option,
)
from tirgym.baselines.surrogate import Vector
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Search

__all__ = ["Args", "MCTSAgent"]

TOP = 1.5
"""Largest value; 1 is the best program that was known when values were made last."""
UNTRIED = 0.5
"""Value of a move that no simulation played."""


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the tree search; counts and shares alone, so that a seed fixes the search."""

    space: str = "decision"
    """decision, primitive, macro or both"""
    depth: int = 16
    """actions of a program at most, where the space is a vocabulary"""
    simulations: int = 120
    """programs proposed between two batches"""
    answers: int = 20
    """choices of a program beyond which fewer are proposed, so that it takes as long on each kernel"""
    batch: int = 8
    """programs measured after each round of simulations"""
    exploration: float = 0.25
    """weight of the prior against the values"""
    temperature: float = 0.1
    """differences of value that make a prior or a draw e times as likely"""
    width: float = 1.0
    """options opened at a node of one visit, besides the default"""
    widening: float = 0.5
    """they grow with this power of the visits"""
    peak: float = 0.5
    """share of the best program below a node in its value; the rest is the mean"""
    follow: float = 0.5
    """share of the simulations that follow one of the fastest programs some way down"""
    playouts: float = 0.6
    """share of the simulations that end in a playout with answers drawn anew"""
    elite: int = 8
    """fastest programs that simulations follow and are finished like"""
    lucky: float = 0.15
    """share of a batch that goes to chance"""
    courage: float = 0.7
    """standard deviations of doubt that speak for measuring a program"""
    pool: int = 300
    """programs remembered for a later batch"""
    patience: int = 0
    """batches in a row without a gain of `gain` before the agent stops early; 0: never"""
    gain: float = 0.05
    """relative gain that counts"""
    fruitless: int = 8
    """rounds in a row without anything new to measure before the agent gives up"""
    prefixes: int = 2000
    """half-way states that are kept, so that relatives need not be built from the start"""


_COUNTS = ("depth", "simulations", "answers", "batch", "elite", "fruitless", "prefixes")
_SHARES = ("peak", "follow", "playouts", "lucky", "widening")


class MCTSAgent:
    """Tree search guided by static cost, corrected by what was measured."""

    name = "mcts"
    spaces = SCHEDULE_SPACES
    """vocabularies that the agent plays, its default first"""

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        if args.space not in SCHEDULE_SPACES:
            raise UnknownNameError("space of agent mcts", args.space, SCHEDULE_SPACES)
        for name in _COUNTS:
            if getattr(args, name) < 1:
                raise InvalidValueError(f"{name} of agent mcts", getattr(args, name), "at least 1")
        for name in _SHARES:
            if not 0.0 <= getattr(args, name) <= 1.0:
                raise InvalidValueError(f"{name} of agent mcts", getattr(args, name), "0 to 1")
        for name in ("exploration", "temperature", "width"):
            if not getattr(args, name) > 0.0:
                raise InvalidValueError(f"{name} of agent mcts", getattr(args, name), "above 0")

    def run(self, search: Search) -> None:
        """Spend the budget; raises UnknownNameError for a space that the backend does not have."""
        _Run(self.args, search).play()


@dataclass(slots=True, eq=False)
class _Node:
    """A program with the choices that are left."""

    state: Choices
    individual: Individual
    """a program that comes of it"""
    closed: list[int]
    """options to be opened, the next one last"""
    edges: list[_Edge] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0
    best: float = 0.0
    spent: bool = False
    """nothing new is left below"""


@dataclass(slots=True, eq=False)
class _Edge:
    """An opened option."""

    child: _Node
    option: int
    visits: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Simulation:
    """One way down the tree, and the program that came of it."""

    nodes: tuple[_Node, ...]
    individual: Individual


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search) -> None:
        self.args, self.search, self.rng = args, search, search.rng
        self.appraisal = Appraisal(search, args.pool, args.space == "decision")
        self.nodes: dict[Hashable, _Node] = {}
        self.following: OrderedDict[Hashable, Choices] = OrderedDict()
        self.simulations: list[_Simulation] = []
        self.moves: dict[tuple[str, int], tuple[float, int]] = {}
        """sum of values, and number, of the simulations that made a choice"""
        self.zero, self.span = 0.0, 1.0

    def play(self) -> None:
        """Simulate and measure until the budget is spent or nothing new turns up."""
        args, appraisal = self.args, self.appraisal
        first = begin_choices(self.search, args.space, args.depth)
        if not appraisal.begin():
            return
        root = self._node(first, {}, None)
        share = min(1.0, args.answers / max(1, len(root.individual.values)))
        self._revalue()
        if not self._measure([root.individual]):
            return
        fruitless = stale = 0
        best = appraisal.fastest()
        while fruitless < args.fruitless:
            for _ in range(max(1, round(share * args.simulations))):
                if self.search.out_of_time():
                    return
                if root.spent:
                    break
                self._simulate(root)
            batch = appraisal.batch(args.batch, args.lucky, args.courage)
            fruitless = 0 if batch else fruitless + (args.fruitless if root.spent else 1)
            if batch and not self._measure(batch):
                return
            stale = 0 if appraisal.fastest() < best - math.log1p(args.gain) else stale + 1
            best = appraisal.fastest() if stale == 0 else best
            if 0 < args.patience <= stale:
                return

    def _measure(self, batch: list[Individual]) -> bool:
        """Measure, and learn from it; False once the budget is spent."""
        go_on = self.appraisal.measure(batch)
        self.appraisal.correct()
        self._revalue()
        return go_on

    # -- one simulation ---------------------------------------------------------------------

    def _simulate(self, root: _Node) -> None:
        """Follow a good program some way, go on by score, open an option, and finish what follows."""
        guide = self._guide()
        path = [root]
        if guide and self.rng.random() < self.args.follow:
            for _ in range(int(self.rng.integers(len(guide)))):
                edge = self._edge_of(path[-1], guide)
                if edge is None:
                    break
                edge.visits += 1
                path.append(edge.child)
        while path[-1].state.question is not None:
            node = path[-1]
            edge = self._open(node, guide) if self._is_wide(node) else self._choose(node)
            if edge is None:
                break
            edge.visits += 1
            path.append(edge.child)
            if edge.child.individual is not node.individual and not edge.child.visits:
                break
        individual = path[-1].individual
        if self.rng.random() < self.args.playouts:
            individual = self._finish(path[-1].state, self._playout(guide))
        self._back_up(_Simulation(tuple(path), individual))
        for node in reversed(path):
            node.spent = not node.closed and all(edge.child.spent for edge in node.edges)

    def _is_wide(self, node: _Node) -> bool:
        """Whether `node` was visited often enough to open one more option."""
        width = 1 + int(self.args.width * node.visits**self.args.widening)
        return bool(node.closed) and len(node.edges) < width

    def _open(self, node: _Node, guide: Mapping[str, int], option: int | None = None) -> _Edge:
        """The next option of `node`, or the closed one that is asked for."""
        question = node.state.question
        assert question is not None  # there was an option
        if option is None:
            option = node.closed.pop()
        else:
            node.closed.remove(option)
        taken = node.individual.values.get(question.key)
        inherits = taken == question.options[option].value
        state = self._answer(node.state, option)
        edge = _Edge(self._node(state, guide, node.individual if inherits else None), option)
        node.edges.append(edge)
        return edge

    def _edge_of(self, node: _Node, guide: Mapping[str, int]) -> _Edge | None:
        """The edge that `guide` takes; None where everything is decided."""
        question = node.state.question
        if question is None:
            return None
        option = wanted_option(question, guide)
        opened = [edge for edge in node.edges if edge.option == option]
        return opened[0] if opened else self._open(node, guide, option)

    def _choose(self, node: _Node) -> _Edge | None:
        """The edge of highest PUCT score; None if there is nothing new behind any."""
        edges = [edge for edge in node.edges if not edge.child.spent]
        if not edges:
            return None
        opinions = [self._value(edge.child.individual) for edge in edges]
        top = max(opinions)
        weights = [math.exp((o - top) / self.args.temperature) for o in opinions]
        scale = self.args.exploration * math.sqrt(node.visits) / sum(weights)
        scores = [
            self._worth(edge.child) + scale * weight / (1 + edge.visits)
            for edge, weight in zip(edges, weights, strict=True)
        ]
        return edges[scores.index(max(scores))]

    def _worth(self, node: _Node) -> float:
        """Mean and maximum of the values below a node."""
        if not node.visits:
            return self._value(node.individual)
        return self.args.peak * node.best + (1.0 - self.args.peak) * node.total / node.visits

    def _back_up(self, simulation: _Simulation) -> None:
        """Keep a simulation, and add it to what its nodes and moves are worth."""
        self.simulations.append(simulation)
        self._count(simulation)

    def _count(self, simulation: _Simulation) -> None:
        value = self._value(simulation.individual)
        for node in simulation.nodes:
            node.visits += 1
            node.total += value
            node.best = max(node.best, value)
        for move in simulation.individual.values.items():
            total, number = self.moves.get(move, (0.0, 0))
            self.moves[move] = total + value, number + 1

    # -- values -----------------------------------------------------------------------------

    def _value(self, individual: Individual) -> float:
        """Log-speedup from 0 for a poor program to 1 for the best one known."""
        return min(max((self.zero - individual.expected) / self.span, 0.0), TOP)

    def _revalue(self) -> None:
        """Normalise by what is known now, and make all values anew.

        Zero is the unscheduled program, or what four of five programs are faster than.
        """
        expected = [individual.expected for individual in self.appraisal.seen.values()]
        self.zero = min(self.appraisal.naive, float(np.quantile(expected, 0.8)))
        best = min(min(expected), self.appraisal.fastest())
        self.span = max(self.zero - best, 0.1)
        self.moves.clear()
        for node in self.nodes.values():
            node.visits, node.total, node.best = 0, 0.0, 0.0
        for simulation in self.simulations:
            self._count(simulation)

    # -- states -----------------------------------------------------------------------------

    def _node(
        self, state: Choices, guide: Mapping[str, int], individual: Individual | None
    ) -> _Node:
        """The node of `state`, finished as `guide` says unless `individual` is known to come of it."""
        key = position(state)
        node = self.nodes.get(key)
        if node is None:
            if individual is None:
                individual = self._finish(state, lambda question: wanted_option(question, guide))
            question = state.question
            closed = [] if question is None else self._order(question, individual.values)
            node = self.nodes[key] = _Node(state, individual, closed)
        return node

    def _answer(self, state: Choices, option: int) -> Choices:
        """What follows; kept, since relatives share most of their way."""
        key = (position(state), option)
        following = self.following.get(key)
        if following is None:
            following = self.following[key] = state.answer(option)
            if len(self.following) > self.args.prefixes:
                self.following.popitem(last=False)
        else:
            self.following.move_to_end(key)
        return following

    def _finish(self, state: Choices, choose: Callable[[Asked], int]) -> Individual:
        """The individual that `choose` makes of `state`."""
        while state.question is not None:
            state = self._answer(state, choose(state.question))
        values = {answer.key: answer.value for answer in state.answers}
        return self.appraisal.individual(state.program, values)

    def _guide(self) -> Mapping[str, int]:
        """Answers of one of the fastest programs; none before any was measured."""
        ranked = self.appraisal.ranked()[: self.args.elite]
        # the first are the fittest: a quadratic law prefers them
        return ranked[int(len(ranked) * self.rng.random() ** 2)][0].values if ranked else {}

    def _playout(self, guide: Mapping[str, int]) -> Callable[[Asked], int]:
        """The answers of `guide`, or the defaults, some of them drawn anew."""
        rate = min(1.0, float(self.rng.choice((1.0, 2.0, 4.0))) / max(1, len(guide)))

        def choose(question: Asked) -> int:
            if self.rng.random() >= rate:
                return wanted_option(question, guide)
            weights = self._weights(question, wanted_option(question, guide))
            return int(self.rng.choice(len(weights), p=weights / weights.sum()))

        return choose

    def _order(self, question: Asked, values: Mapping[str, int]) -> list[int]:
        """Options in the order in which they are opened, last first: that of `values`, then a draw."""
        first = wanted_option(question, values)
        weights = self._weights(question, first)
        draws = self.rng.random(len(weights)) ** (1.0 / weights)
        draws[first] = 2.0
        return [int(option) for option in np.argsort(draws, kind="stable")]

    def _weights(self, question: Asked, centre: int) -> Vector:
        """How likely each option is drawn: by what it was worth in other programs.

        Options of one label share a weight, so that kinds with many instances are not nearly all
        that is tried; where labels differ, options near `centre` are likelier.
        """
        labels = Counter(option.label for option in question.options)
        near = len(labels) == len(question.options)
        weights = np.empty(len(question.options))
        for number, option in enumerate(question.options):
            total, tried = self.moves.get((question.key, option.value), (0.0, 0))
            gain = (total + UNTRIED) / (tried + 1) - UNTRIED
            gap = abs(number - centre) if near else 0
            share = labels[option.label] * (1 + gap)
            weights[number] = math.exp(gain / self.args.temperature) / share
        return np.asarray(np.maximum(weights / weights.max(), 1e-6))
