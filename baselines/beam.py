"""Beam search: the static cost looks at many programs, the budget is spent on few of them.

    tirgym optimize matmul --agent beam --trials 64 --seed 0

Each round runs a beam that measures nothing: from the seeds, random moves (`moves.py`) are applied,
the programs of lowest predicted time are kept at each depth, a share of the places goes to chance.
The most promising programs that differ are then measured. What was measured corrects the
predictions of a program's descendants, and the fastest become seeds of the next round, where their
steps are also mutated. So the model proposes and the machine decides. Cost-guided search with
measured rounds follows Zheng et al., "Ansor" (OSDI 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tirgym.baselines.moves import moves, mutations
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Search
from tirgym.harness.program import Program

__all__ = ["Args", "BeamAgent"]


@dataclass(frozen=True, slots=True)
class Args:
    """Options of the beam agent; all are counts, so that a seed fixes what is proposed."""

    width: int = 16
    """programs kept at each depth"""
    depth: int = 14
    """moves between a seed and the last programs of a beam"""
    samples: int = 10
    """moves tried on each program"""
    batch: int = 8
    """programs measured after each beam"""
    explore: float = 0.25
    """share of the places in a beam, and of a batch, that go to chance"""
    elite: int = 4
    """fastest programs that seed the next round"""
    inherit: float = 0.7
    """how much of an ancestor's measured/predicted ratio one move passes on"""
    fruitless: int = 6
    """rounds in a row without anything new to measure before the agent gives up"""


@dataclass(slots=True)
class _Node:
    """A program in the search; times are natural logarithms of µs."""

    program: Program
    predicted: float
    surprise: float
    """expected measured − predicted, inherited from measured ancestors"""
    measured: float | None = None

    @property
    def expected(self) -> float:
        """What the program is thought to take."""
        return self.predicted + self.surprise if self.measured is None else self.measured


class BeamAgent:
    """Beams guided by static cost, corrected by what was measured."""

    name = "beam"

    def __init__(self, **options: Any) -> None:
        self.args = args = Args(**options)
        for field in ("width", "depth", "samples", "batch", "elite", "fruitless"):
            if getattr(args, field) < 1:
                raise InvalidValueError(
                    f"{field} of agent beam", getattr(args, field), "at least 1"
                )
        if not 0.0 <= args.explore <= 1.0:
            raise InvalidValueError("explore of agent beam", args.explore, "0 to 1")

    def run(self, search: Search) -> None:
        """Spend the budget."""
        _Run(self.args, search).play()


class _Run:
    """The state of one run."""

    def __init__(self, args: Args, search: Search) -> None:
        self.args, self.search, self.rng = args, search, search.rng
        self.predictions: dict[str, float] = {}
        self.measured: dict[str, _Node] = {}
        self.naive = 0.0
        """log of the first measured time; later times are it over their speedup, so that a
        machine that speeds up or slows down moves none against another"""
        self.dead: set[str] = set()
        """programs that did not pass"""

    def play(self) -> None:
        """Rounds of beam and batch until the budget is spent or nothing new turns up."""
        start = self._node(self.search.start, None)
        if not self._measure(start):
            return
        fruitless = 0
        while fruitless < self.args.fruitless and not self.search.out_of_time():
            found = self._beam(self._seeds(start))
            batch = self._batch(found)
            fruitless = 0 if batch else fruitless + 1
            for node in batch:
                if self.search.out_of_time() or not self._measure(node):
                    return

    # -- one round --------------------------------------------------------------------------

    def _seeds(self, start: _Node) -> list[_Node]:
        """The fastest programs and mutations of them; now and then only the unscheduled one."""
        elite = sorted(self.measured.values(), key=_rank)[: self.args.elite]
        if len(elite) < self.args.elite or self.rng.random() < self.args.explore:
            return [start]
        seeds = {node.program.ir_key: node for node in elite}
        for node in elite:
            for program in mutations(
                node.program,
                self.search.start,
                self.search.vocabulary,
                self.rng,
                self.args.samples * 2,
            ):
                if program.ir_key not in seeds and program.ir_key not in self.dead:
                    seeds[program.ir_key] = self._node(program, node)
        return list(seeds.values())

    def _beam(self, seeds: list[_Node]) -> dict[str, _Node]:
        """Programs that were in the beam at some depth, by IR key."""
        found = {node.program.ir_key: node for node in seeds}
        frontier = self._keep(seeds)
        seen = set(found)
        for _ in range(self.args.depth):
            children: list[_Node] = []
            for node in frontier:
                for program in self._moves(node):
                    if program.ir_key not in seen:
                        seen.add(program.ir_key)
                        children.append(self._node(program, node))
                if self.search.out_of_time():
                    return found
            if not children:
                break
            frontier = self._keep([*children, *frontier])
            found.update((node.program.ir_key, node) for node in frontier)
        return found

    def _moves(self, node: _Node) -> Iterator[Program]:
        return moves(node.program, self.search.vocabulary, self.rng, self.args.samples)

    def _keep(self, nodes: list[_Node]) -> list[_Node]:
        """The next frontier: the best that differ in predicted time, the rest by chance."""
        lucky = round(self.args.width * self.args.explore)
        best, rest = _distinct(sorted(nodes, key=_rank), self.args.width - lucky)
        if rest and lucky:
            drawn = self.rng.choice(len(rest), size=min(lucky, len(rest)), replace=False)
            best += [rest[i] for i in sorted(drawn)]
        return best

    def _batch(self, found: dict[str, _Node]) -> list[_Node]:
        """What to measure: the best unmeasured programs that differ, some of them by chance."""
        unknown = (n for key, n in found.items() if n.measured is None and key not in self.dead)
        lucky = round(self.args.batch * self.args.explore)
        best, rest = _distinct(sorted(unknown, key=_rank), self.args.batch - lucky)
        rest = rest[: 8 * self.args.batch]
        if rest and lucky:
            drawn = self.rng.choice(len(rest), size=min(lucky, len(rest)), replace=False)
            best += [rest[i] for i in sorted(drawn)]
        return best

    # -- nodes ------------------------------------------------------------------------------

    def _node(self, program: Program, parent: _Node | None) -> _Node:
        key = program.ir_key
        if key in self.measured:
            return self.measured[key]
        predicted = self.predictions.get(key)
        if predicted is None:
            predicted = math.log(self.search.cost.predict_us(program))
            self.predictions[key] = predicted
        surprise = 0.0
        if parent is not None:
            surprise = parent.surprise
            if parent.measured is not None:
                surprise = parent.measured - parent.predicted
            surprise *= self.args.inherit
        return _Node(program, predicted, surprise)

    def _measure(self, node: _Node) -> bool:
        """Ask the evaluator; False once the budget is spent."""
        evaluation = self.search.evaluate(node.program)
        if evaluation is None:
            return False
        key = node.program.ir_key
        if evaluation.measurement is None:
            self.dead.add(key)
            return True
        if not self.measured:
            self.naive = math.log(evaluation.measurement.latency_us)
        node.measured = self.naive - math.log(evaluation.measurement.speedup)
        self.measured[key] = node
        return True


def _rank(node: _Node) -> tuple[float, int, str]:
    """Sort key: expected time, then fewer steps, then IR key."""
    return (node.expected, len(node.program.steps), node.program.ir_key)


def _distinct(ranked: Iterable[_Node], number: int) -> tuple[list[_Node], list[_Node]]:
    """The first `number` of `ranked` with different expected times, and all others.

    Programs of equal predicted time are nearly always the same program in another disguise.
    """
    taken: list[_Node] = []
    rest: list[_Node] = []
    times: set[float] = set()
    for node in ranked:
        time = round(node.expected, 9)
        if len(taken) < number and time not in times:
            times.add(time)
            taken.append(node)
        else:
            rest.append(node)
    return taken, rest
