"""`DecisionGraph`: the IR states that runs visited, and what led from one to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tirgym.errors import UnknownNameError
from tirgym.harness.target import Target

__all__ = ["DecisionGraph", "Edge", "Root", "State"]


@dataclass(frozen=True, slots=True)
class Root:
    """One workload for one target: where a part of the graph begins."""

    state: str
    """id of the unscheduled program's state"""
    workload: str
    """URI"""
    target: Target


@dataclass(frozen=True, slots=True)
class State:
    """One IR state, whoever visited it.

    States merge by IR key, across runs. Within a decision episode the open question belongs to the
    state, since it decides what can be done next: the same IR under two questions is two states,
    which share their verdict.
    """

    id: str
    """number of the root, IR key, and "?" with the open question if there is one"""
    root: int
    """index into `DecisionGraph.roots`"""
    ir_key: str
    point: str
    """key of the open question, "" if there is none"""
    visits: int
    """candidates and episodes that came through"""
    runs: int
    """different runs that came through"""
    cost_us: float | None
    """static cost, None where there is no model for the dialect"""
    status: str
    """verdict, "" if nobody judged: of full evaluations before others; a wrong or flaky result
    counts for ever, then a pass before other verdicts"""
    level: str
    latency_us: float | None
    """best of the verdict's level"""
    speedup: float | None
    """best of the verdict's level, over the unscheduled program; None without a pass"""
    code_key: str
    message: str
    options: tuple[str, ...] = ()
    """labels of what the open question accepts"""
    costs_us: tuple[float, ...] = ()
    """static cost right after each option, if it was recorded"""

    @property
    def gain(self) -> float | None:
        """Natural logarithm of the speedup."""
        return None if self.speedup is None else math.log(self.speedup)


@dataclass(frozen=True, slots=True)
class Edge:
    """A transform, or an answer to a decision point, from one state to the next.

    Gains are natural logarithms of time before / time after: above 0 is faster.
    """

    id: int
    """index into `DecisionGraph.edges`"""
    source: str
    target: str
    label: str
    """the transform as text, or "point: option" """
    point: str
    """the question that was answered, "" for a transform"""
    transforms: tuple[str, ...]
    """what was applied"""
    visits: int
    cost_gain: float | None
    """what the static cost says"""
    weight: float | None
    """mean confidence of the agents that chose it, None where none was stated"""
    predicted_gain: float | None
    """mean speedup over the static choice that the agents expected"""
    gain: float | None
    """what was measured, None where nothing behind it was"""
    gain_from: str
    """"measured": both ends were. "attributed": see `build`. "same IR": nothing changed, so 0. ""
    without a gain"""


class DecisionGraph:
    """Roots, states and edges, in an order that depends on the runs alone; never changes."""

    def __init__(
        self,
        roots: Iterable[Root],
        states: Iterable[State],
        edges: Iterable[Edge],
        warnings: Iterable[str] = (),
    ) -> None:
        self.roots = tuple(roots)
        self.states: Mapping[str, State] = {state.id: state for state in states}
        self.edges = tuple(edges)
        self.warnings = tuple(warnings)
        """what was left out when it was built, one line each"""
        self._out: dict[str, list[Edge]] = {name: [] for name in self.states}
        self._into: dict[str, list[Edge]] = {name: [] for name in self.states}
        for edge in self.edges:
            self._out[edge.source].append(edge)
            self._into[edge.target].append(edge)

    def state(self, name: str) -> State:
        """The state with that id; raises UnknownNameError."""
        if name not in self.states:
            raise UnknownNameError("state", name, self.states)
        return self.states[name]

    def out(self, name: str) -> list[Edge]:
        """Edges that leave a state."""
        return self._out[self.state(name).id]

    def into(self, name: str) -> list[Edge]:
        """Edges that lead to a state."""
        return self._into[self.state(name).id]

    def of(self, root: int) -> list[State]:
        """The states of one root."""
        return [state for state in self.states.values() if state.root == root]

    @cached_property
    def parents(self) -> Mapping[str, Edge]:
        """The last edge of a shortest way from the root, by state; roots have none.

        Of equally short ways, the one that was visited most, then the earlier edge.
        """
        found: dict[str, Edge] = {}
        level = [root.state for root in self.roots]
        reached = set(level)
        while level:
            leads: dict[str, Edge] = {}
            for edge in (edge for name in level for edge in self._out[name]):
                known = leads.get(edge.target)
                if edge.target not in reached and (known is None or _rank(edge) > _rank(known)):
                    leads[edge.target] = edge
            found.update(leads)
            reached.update(leads)
            level = list(leads)
        return found

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """Edges on a shortest way from the root, by state."""
        found = {root.state: 0 for root in self.roots}
        for name, edge in self.parents.items():  # nearer states come first
            found[name] = found[edge.source] + 1
        return found

    def path(self, name: str) -> list[Edge]:
        """The edges of a shortest way from the root to a state."""
        name, edges = self.state(name).id, []
        while name in self.parents:
            edges.append(self.parents[name])
            name = edges[-1].source
        return edges[::-1]

    def transforms(self, name: str) -> tuple[str, ...]:
        """What makes a state of the unscheduled program, along `path`."""
        return tuple(text for edge in self.path(name) for text in edge.transforms)

    @cached_property
    def reach(self) -> Mapping[str, State]:
        """The fastest measured state that can be reached from each state, itself included.

        States from which none can be reached are left out.
        """
        measured = [state for state in self.states.values() if state.speedup is not None]
        found: dict[str, State] = {}
        for best in sorted(measured, key=lambda state: (-(state.speedup or 0.0), state.id)):
            front = [best.id]
            while front:
                name = front.pop()
                if name not in found:
                    found[name] = best
                    front += [edge.source for edge in self._into[name]]
        return found


def _rank(edge: Edge) -> tuple[int, int]:
    return edge.visits, -edge.id
