"""`build_graph`: from the visits of runs to one graph.

A visit that was walked as a whole (a search's candidate, a trace) counts once on every state and
transform on its way; a step of an episode counts once. Where an episode begins to answer decision
points, an edge "open questions" leads from the IR to the first of them. The program of a search that
decides is shown by its answers, and counts once on each.

The gain of an edge is measured if both of its ends were. Otherwise it is attributed (see
`attribution`) on the ways that were walked from one measured state to the next, over states that
nobody measured. An edge on several such ways gets the mean. The unscheduled program counts as
measured: its speedup is 1 by definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tirgym.errors import InvalidValueError, TirgymError
from tirgym.harness.cost import CostModel
from tirgym.harness.decision_graph.attribution import attribute
from tirgym.harness.decision_graph.decided import DecidedWays
from tirgym.harness.decision_graph.model import DecisionGraph, Edge, Root, State
from tirgym.harness.decision_graph.replayed import KeyedStates
from tirgym.harness.decision_graph.sources import Runs
from tirgym.harness.decision_graph.verdicts import settle
from tirgym.harness.run_record import Choice, Visit
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_workload

__all__ = ["OPEN_QUESTIONS", "build_graph"]

OPEN_QUESTIONS = "open questions"
"""Label of the edge from an IR state to the first decision point about it."""

_Key = tuple[str, str]
"""IR key and open question."""


def build_graph(
    runs: Runs,
    *,
    cost: CostModel | None = None,
    load: Callable[[str], Workload] = load_workload,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DecisionGraph:
    """The graph of `runs`.

    `cost` is the static cost model, by default that of the IR's dialect. `load` makes workloads of
    URIs. `progress` is told how many ways were replayed, and of how many. Visits that cannot be
    replayed here, or make another IR than they recorded, are left out with a warning; raises
    InvalidValueError if none is left.
    """
    groups: dict[tuple[str, Target], list[Visit]] = {}
    for visit in runs.visits:
        groups.setdefault((visit.workload, visit.target), []).append(visit)
    total = sum(len({visit.transforms for visit in visits}) for visits in groups.values())
    warnings, done = list(runs.warnings), 0
    parts: list[tuple[Root, list[State], list[Edge]]] = []
    edges = 0
    for (workload, target), visits in sorted(groups.items()):
        try:
            keyed = KeyedStates(load(workload), target, cost)
        except TirgymError as error:
            done += len({visit.transforms for visit in visits})
            warnings.append(f"{len(visits)} visits of {workload} for {target} left out: {error}")
            continue

        def advance() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        keyed.replay((visit.transforms for visit in visits), advance)
        decided = DecidedWays(keyed, (visit.answers for visit in visits))
        part = _Part(len(parts), keyed, decided)
        part.take(visits)
        warnings += part.warnings(f"{workload} for {target}")
        if part.taken:
            states, made = part.finish(edges)
            parts.append((Root(states[0].id, workload, target), states, made))
            edges += len(made)
    if not parts:
        raise InvalidValueError("runs", "none that can be replayed", "; ".join(warnings))
    return DecisionGraph(
        [root for root, _, _ in parts],
        [state for _, states, _ in parts for state in states],
        [edge for _, _, made in parts for edge in made],
        warnings,
    )


@dataclass
class _Draft:
    """An edge in the making."""

    source: _Key
    target: _Key
    label: str
    point: str
    transforms: tuple[str, ...]
    visits: int = 0
    weights: list[float] = field(default_factory=list)
    predictions: list[float] = field(default_factory=list)


@dataclass
class _Node:
    """A state in the making."""

    visits: int = 0
    runs: set[str] = field(default_factory=set)
    options: tuple[str, ...] = ()
    costs_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Way:
    """The edges that an episode walked so far, last one first."""

    last: int
    rest: _Way | None

    def edges(self) -> tuple[int, ...]:
        found: list[int] = []
        way: _Way | None = self
        while way is not None:
            found.append(way.last)
            way = way.rest
        return tuple(reversed(found))


class _Part:
    """The states and edges of one workload and target."""

    def __init__(self, number: int, keyed: KeyedStates, decided: DecidedWays) -> None:
        self.number, self.keyed, self.decided = number, keyed, decided
        self.start: _Key = (keyed.keys[()], "")
        self.nodes: dict[_Key, _Node] = {self.start: _Node()}
        self.known = {self.start[0]}
        """IR keys of the nodes"""
        self.drafts: list[_Draft] = []
        self.index: dict[tuple[_Key, _Key, str], int] = {}
        self.verdicts: dict[str, list[Visit]] = {}
        self.ways: dict[tuple[int, ...], None] = {}
        """every way that was walked, once"""
        self.arrived: dict[tuple[str, _Key], _Way | None] = {}
        """how each run last came to a state"""
        self.taken = 0
        self.failed: list[str] = []
        self.changed: list[str] = []
        self.undecided = 0
        """visits whose answers lead elsewhere now, so that they are shown by their transforms"""

    # -- visits -----------------------------------------------------------------------------

    def take(self, visits: Sequence[Visit]) -> None:
        """Take in `visits`, in their order."""
        for visit in visits:
            failure = self.keyed.failures.get(visit.transforms)
            if failure is not None:
                self.failed.append(failure)
            elif visit.ir_key and visit.ir_key != self.keyed.keys[visit.transforms]:
                self.changed.append(visit.run)
            else:
                self.taken += 1
                self._take(visit)

    def warnings(self, what: str) -> Iterator[str]:
        """What was left out, one line for each reason."""
        if self.failed:
            yield f"{len(self.failed)} visits of {what} left out: {self.failed[0]}"
        if self.changed:
            yield (
                f"{len(self.changed)} visits of {what} left out: they make another IR here than "
                f"recorded ({self.changed[0]}); they need the versions that made them"
            )
        if self.undecided:
            yield (
                f"{self.undecided} visits of {what} are shown by transforms: their answers lead to "
                "other programs here"
            )

    def _take(self, visit: Visit) -> None:
        key = self.keyed.keys[visit.transforms]
        self.verdicts.setdefault(key, []).append(visit)
        steps, choice = visit.transforms, visit.choice
        if visit.before == len(steps) and choice is None:
            if key not in self.known:  # another verdict on a state that no line visits
                self._remember(self._walk(steps, 0, visit.run))
        elif visit.before is None:
            self._remember(self._whole(visit, key))
        else:
            self._step(visit, visit.before, choice)

    def _whole(self, visit: Visit, key: str) -> _Way | None:
        """A way that was walked as a whole, by its answers if they still lead there."""
        decided = self.decided.ways.get(visit.answers, ())
        if not decided or decided[-1].target != (key, ""):
            self.undecided += bool(visit.answers)
            return self._walk(visit.transforms, 1, visit.run)
        first = decided[0]
        way = self._lead(visit.run, first.before, first.source, 1)
        for step in decided:
            way = _Way(self._choose(step.source, step.target, step.choice, step.transforms), way)
            self._visited(step.target, 1, visit.run)
        return way

    def _step(self, visit: Visit, before: int, choice: Choice | None) -> None:
        """One step of an episode; what leads to it is made if this is the first of it."""
        steps = visit.transforms
        source = (self.keyed.keys[steps[:before]], choice.point if choice else "")
        target = (self.keyed.keys[steps], choice.next_point if choice else "")
        begins = choice.number == 0 if choice else before == 0
        where = (visit.run, source)
        if begins or where not in self.arrived:
            self.arrived[where] = self._lead(visit.run, steps[:before], source, int(begins))
        applied = steps[before:]
        if choice is None:
            edge = self._edge(_Draft(source, target, "; ".join(applied), "", applied), 1)
        else:
            edge = self._choose(source, target, choice, applied)
        self._visited(target, 1, visit.run)
        way = self.arrived[visit.run, target] = _Way(edge, self.arrived[where])
        self._remember(way)

    def _choose(
        self, source: _Key, target: _Key, choice: Choice, transforms: tuple[str, ...]
    ) -> int:
        """The edge of an answer, visited once more; its question is noted at the source."""
        label = f"{choice.point}: {choice.label}"
        number = self._edge(_Draft(source, target, label, choice.point, transforms), 1)
        edge, node = self.drafts[number], self.nodes[source]
        if choice.confidence is not None:
            edge.weights.append(choice.confidence)
        if choice.predicted_gain is not None:
            edge.predictions.append(choice.predicted_gain)
        node.options = choice.options
        node.costs_us = choice.costs_us or node.costs_us
        return number

    def _lead(self, run: str, before: tuple[str, ...], source: _Key, visits: int) -> _Way | None:
        """From the root to `source`, where the first known step of an episode begins."""
        way = self._walk(before, visits, run)
        if source[1]:
            draft = _Draft((source[0], ""), source, OPEN_QUESTIONS, "", ())
            way = _Way(self._edge(draft, visits), way)
            self._visited(source, visits, run)
        return way

    def _walk(self, steps: tuple[str, ...], visits: int, run: str) -> _Way | None:
        """A way of transforms from the root on."""
        source, way = self.start, None
        self._visited(source, visits, run)
        for at, text in enumerate(steps, 1):
            target = self._key(steps[:at])
            edge = self._edge(_Draft(source, target, text, "", (text,)), visits)
            self._visited(target, visits, run)
            source, way = target, _Way(edge, way)
        return way

    def _key(self, steps: tuple[str, ...]) -> _Key:
        return self.keyed.keys[steps], ""

    def _visited(self, key: _Key, visits: int, run: str) -> None:
        self.known.add(key[0])
        node = self.nodes.setdefault(key, _Node())
        node.visits += visits
        if visits:
            node.runs.add(run)

    def _edge(self, draft: _Draft, visits: int) -> int:
        """The number of the edge; equal ones are one."""
        index = self.index.setdefault((draft.source, draft.target, draft.label), len(self.drafts))
        if index == len(self.drafts):
            self.drafts.append(draft)
        self.drafts[index].visits += visits
        return index

    def _remember(self, way: _Way | None) -> None:
        if way is None:
            return
        edges = way.edges()
        self.ways.pop(edges[:-1], None)  # the same way, one step shorter
        self.ways[edges] = None

    # -- the result -------------------------------------------------------------------------

    def finish(self, first_edge: int) -> tuple[list[State], list[Edge]]:
        """States, the root's first, and edges, numbered from `first_edge` on."""
        settled = {key: settle(visits) for key, visits in self.verdicts.items()}
        states = {
            key: self._state(key, node, settled.get(key[0])) for key, node in self.nodes.items()
        }
        shares = self._shares(states)
        edges = [
            self._finished(first_edge + number, draft, states, shares.get(number))
            for number, draft in enumerate(self.drafts)
        ]
        return list(states.values()), edges

    def _state(self, key: _Key, node: _Node, verdict: Visit | None) -> State:
        ir_key, point = key
        return State(
            id=f"{self.number}:{ir_key}{'?' if point else ''}{point}",
            root=self.number,
            ir_key=ir_key,
            point=point,
            visits=node.visits,
            runs=len(node.runs),
            cost_us=self.keyed.costs.get(ir_key),
            status=verdict.status if verdict else "",
            level=verdict.level if verdict else "",
            latency_us=verdict.latency_us if verdict else None,
            speedup=verdict.speedup if verdict else None,
            code_key=verdict.code_key if verdict else "",
            message=verdict.message if verdict else "",
            options=node.options,
            costs_us=node.costs_us,
        )

    def _finished(
        self, number: int, draft: _Draft, states: dict[_Key, State], share: float | None
    ) -> Edge:
        source, target = states[draft.source], states[draft.target]
        gain, gain_from = share, "" if share is None else "attributed"
        before, after = self._gain(source), self._gain(target)
        if source.ir_key == target.ir_key:
            gain, gain_from = 0.0, "same IR"
        elif before is not None and after is not None:
            gain, gain_from = after - before, "measured"
        return Edge(
            id=number,
            source=source.id,
            target=target.id,
            label=draft.label,
            point=draft.point,
            transforms=draft.transforms,
            visits=draft.visits,
            cost_gain=_cost_gain(source, target),
            weight=_mean(draft.weights),
            predicted_gain=_mean(draft.predictions),
            gain=gain,
            gain_from=gain_from,
        )

    def _gain(self, state: State) -> float | None:
        """Measured gain over the unscheduled program, whose own is 0 by definition."""
        if state.gain is None and not state.status and state.ir_key == self.start[0]:
            return 0.0
        return state.gain

    def _shares(self, states: dict[_Key, State]) -> dict[int, float]:
        """Attributed gains by number of the edge; see the module."""
        segments: dict[tuple[int, ...], None] = {}
        for way in self.ways:
            segments.update(dict.fromkeys(self._segments(way, states)))
        shares: dict[int, list[float]] = {}
        for segment in segments:
            ends = [(states[self.drafts[e].source], states[self.drafts[e].target]) for e in segment]
            measured = (self._gain(ends[-1][1]) or 0.0) - (self._gain(ends[0][0]) or 0.0)
            changes = [at for at, (one, other) in enumerate(ends) if one.ir_key != other.ir_key]
            static = [_cost_gain(*ends[at]) or 0.0 for at in changes]
            for at, share in zip(changes, attribute(measured, static), strict=True):
                shares.setdefault(segment[at], []).append(share)
        return {edge: math.fsum(values) / len(values) for edge, values in shares.items()}

    def _segments(
        self, way: tuple[int, ...], states: dict[_Key, State]
    ) -> Iterator[tuple[int, ...]]:
        """The parts of a way from one measured state to the next, of more than one edge."""
        open_segment: list[int] | None = None
        for number in way:
            draft = self.drafts[number]
            if self._gain(states[draft.source]) is not None:
                open_segment = []
            if open_segment is not None:
                open_segment.append(number)
            ends = self._gain(states[draft.target]) is not None
            if ends and open_segment and len(open_segment) > 1:
                yield tuple(open_segment)


def _cost_gain(source: State, target: State) -> float | None:
    if source.cost_us is None or target.cost_us is None:
        return None
    return math.log(source.cost_us / target.cost_us)


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.fsum(found) / len(found) if found else None
