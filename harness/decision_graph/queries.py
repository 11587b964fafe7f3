"""What one asks of a decision graph: the best path, where to go on, and what a choice cost.

Gains and regrets are natural logarithms of time ratios: 0.69 is a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tirgym.harness.decision_graph.model import DecisionGraph, Edge, State
from tirgym.harness.status import FATAL, Status

__all__ = ["Continuation", "best_path", "best_state", "frontier", "promise", "regret"]

DEAD = FATAL | {Status.ILLEGAL, Status.COMPILE_ERROR}
"""Verdicts that no continuation is sought for. A slow or noisy state can be half-way to a good one."""


def best_state(graph: DecisionGraph, root: int = 0) -> State | None:
    """The fastest measured state of a root; None if none was measured."""
    return graph.reach.get(graph.roots[root].state)


def best_path(graph: DecisionGraph, root: int = 0) -> list[Edge]:
    """The edges of a shortest way from the root to its fastest measured state.

    States merge, so the way may be shorter than any that was walked. Empty where the unscheduled
    program is the fastest, or nothing was measured. `transforms` of the edges, in a row, make the
    state's IR again.
    """
    best = best_state(graph, root)
    return [] if best is None else graph.path(best.id)


def regret(graph: DecisionGraph, edge: Edge) -> float | None:
    """What choosing `edge` cost at its source: best reachable otherwise minus best through it.

    Both are gains of the fastest measured state that can be reached. The alternatives are the other
    edges that leave the same state; where no question is open, to stop there is one too, if the
    state was measured. Above 0 another choice was better; below 0 this was the best, by that much.
    None where nothing was measured behind the edge, or behind any alternative.
    """
    through = graph.reach.get(edge.target)
    source = graph.state(edge.source)
    others = [graph.reach.get(e.target) for e in graph.out(edge.source) if e.id != edge.id]
    if not source.point:
        others.append(source)
    gains = [state.gain for state in others if state is not None and state.gain is not None]
    if through is None or through.gain is None or not gains:
        return None
    return max(gains) - through.gain


@dataclass(frozen=True, slots=True)
class Continuation:
    """A state from which a search could go on."""

    state: State
    kind: str
    """"untried": something can be done here that nobody did. "unmeasured": nobody judged it"""
    promise: float
    """see `promise`; of the best untried option, where options have a static cost"""
    untried: tuple[str, ...]
    """options or transforms that nobody took"""


def promise(graph: DecisionGraph, state: State) -> float | None:
    """Expected gain of a state over the unscheduled program.

    What was measured; else what was measured at the nearest state on the way from the root, plus
    what the static cost says of the way from there. None for a dead state.
    """
    if state.status in DEAD:
        return None
    measured, cost_us = _measured_before(graph, state)
    if cost_us is None or state.cost_us is None:
        return measured
    return measured + math.log(cost_us / state.cost_us)


def frontier(
    graph: DecisionGraph,
    root: int = 0,
    limit: int = 20,
    legal: Callable[[State], Sequence[str]] | None = None,
) -> list[Continuation]:
    """At most `limit` states to go on from, most promising first.

    States that were refused or broke are left out. On the frontier are

    - states with something untried: options of the open question that nobody took or, where no
      question is open, transforms that `legal` says are legal there and no edge carries;
    - unmeasured leaves: nobody judged them, nothing follows, and `promise` is at least the gain of
      the nearest measured state on the way there.

    `legal` may be slow (a mask takes up to 30 ms): it is asked about the most promising states only.
    Without it, transforms are not looked for.
    """
    ranked: list[tuple[float, State]] = []
    for state in graph.of(root):
        expected = promise(graph, state)
        if expected is not None:
            ranked.append((_best_option(graph, state, expected), state))
    ranked.sort(key=lambda item: (-item[0], item[1].id))
    found: list[Continuation] = []
    for expected, state in ranked:
        if len(found) == limit:
            break
        untried = _untried(graph, state, legal)
        if untried:
            found.append(Continuation(state, "untried", expected, untried))
        elif _open_leaf(graph, state) and expected >= _measured_before(graph, state)[0]:
            found.append(Continuation(state, "unmeasured", expected, ()))
    return found


def _open_leaf(graph: DecisionGraph, state: State) -> bool:
    return not state.status and not state.point and not graph.out(state.id)


def _untried(
    graph: DecisionGraph, state: State, legal: Callable[[State], Sequence[str]] | None
) -> tuple[str, ...]:
    taken = {edge.label for edge in graph.out(state.id)}
    if state.point:
        return tuple(o for o in state.options if f"{state.point}: {o}" not in taken)
    return () if legal is None else tuple(text for text in legal(state) if text not in taken)


def _best_option(graph: DecisionGraph, state: State, expected: float) -> float:
    """`expected`, or what the cheapest untried option promises."""
    costs = dict(zip(state.options, state.costs_us, strict=False))
    untried = [costs[option] for option in _untried(graph, state, None) if option in costs]
    if not untried or state.cost_us is None:
        return expected
    return expected + math.log(state.cost_us / min(untried))


def _measured_before(graph: DecisionGraph, state: State) -> tuple[float, float | None]:
    """Gain and static cost of `state` if it was measured, else of the nearest one on the way."""
    at = state
    while at.gain is None and at.id in graph.parents:
        at = graph.state(graph.parents[at.id].source)
    return at.gain or 0.0, at.cost_us
