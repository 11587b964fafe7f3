"""`lost_time`: which step of a trace made the program slower, and where it left the best way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tirgym.harness.cost import CostModel
from tirgym.harness.decision_graph.attribution import attribute
from tirgym.harness.decision_graph.model import DecisionGraph, State
from tirgym.harness.decision_graph.queries import regret
from tirgym.harness.decision_graph.replayed import default_cost
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.replay import replay_steps, require_key
from tirgym.harness.trace import Trace

__all__ = ["LostTime", "StepGain", "lost_time"]


@dataclass(frozen=True, slots=True)
class StepGain:
    """What one transform of a trace did. Gains are logarithms of time before / time after."""

    number: int
    """from 1 on"""
    transform: str
    ir_key: str
    """after it"""
    cost_gain: float | None
    """by the static cost"""
    gain: float | None
    gain_from: str
    """"measured" (both ends were), "attributed" (laid on it, see `attribution`), "static" (nothing
    behind it was measured), "" without a gain"""
    speedup: float | None
    """measured after it, over the unscheduled program"""
    regret: float | None
    """of the step as an edge of the graph, None where it is none"""


@dataclass(frozen=True, slots=True)
class LostTime:
    """The steps of a trace, and the two that matter."""

    steps: tuple[StepGain, ...]
    slowest: StepGain | None
    """with the lowest gain, if that is below 0: this step made the program slower"""
    departure: StepGain | None
    """with the highest regret, if that is above 0: here the trace left a better way"""


def lost_time(
    trace: Trace,
    graph: DecisionGraph | None = None,
    *,
    evaluator: Evaluator | None = None,
    cost: CostModel | None = None,
) -> LostTime:
    """The gain of each step of `trace`, as exactly as it is known.

    With an `evaluator` every state on the way is measured, for the trace's target. Otherwise what
    `graph` has of these states is used, and gains between measured states are attributed by the
    static cost. The unscheduled program counts as measured. Raises what `replay_steps` raises.
    """
    programs = list(replay_steps(trace))
    require_key(trace, programs[-1])
    model = default_cost(programs[0].dialect) if cost is None else cost
    costs = [None if model is None else model.predict_us(program) for program in programs]
    states = _states(graph, trace, programs)
    speedups = _speedups(programs, states, evaluator)
    gains = [None if speedup is None else math.log(speedup) for speedup in speedups]
    gains[0] = gains[0] or 0.0
    static = [
        None if before is None or after is None else math.log(before / after)
        for before, after in pairwise(costs)
    ]
    steps = tuple(
        StepGain(
            number=at + 1,
            transform=trace.transforms[at],
            ir_key=programs[at + 1].ir_key,
            cost_gain=static[at],
            gain=gain,
            gain_from=source,
            speedup=speedups[at + 1],
            regret=_regret(graph, states[at], states[at + 1], trace.transforms[at]),
        )
        for at, (gain, source) in enumerate(_step_gains(gains, static))
    )
    slowest = min(steps, key=lambda step: step.gain or 0.0, default=None)
    departure = max(steps, key=lambda step: step.regret or 0.0, default=None)
    return LostTime(
        steps,
        slowest if slowest is not None and (slowest.gain or 0.0) < 0 else None,
        departure if departure is not None and (departure.regret or 0.0) > 0 else None,
    )


def _states(
    graph: DecisionGraph | None, trace: Trace, programs: Sequence[Program]
) -> list[State | None]:
    """The states of the graph that the trace goes through, None where it has none."""
    if graph is None:
        return [None] * len(programs)
    found = {
        state.ir_key: state
        for number, root in enumerate(graph.roots)
        if (root.workload, root.target) == (trace.workload, trace.target)
        for state in graph.of(number)
        if not state.point
    }
    return [found.get(program.ir_key) for program in programs]


def _speedups(
    programs: Sequence[Program], states: Sequence[State | None], evaluator: Evaluator | None
) -> list[float | None]:
    if evaluator is None:
        return [None if state is None else state.speedup for state in states]
    return [evaluator.evaluate(program).speedup for program in programs]


def _step_gains(
    gains: Sequence[float | None], static: Sequence[float | None]
) -> list[tuple[float | None, str]]:
    """Gain and its source for each step; `gains` are those of the states, one more than steps."""
    found: list[tuple[float | None, str]] = []
    known = [at for at, gain in enumerate(gains) if gain is not None]
    for first, last in pairwise(known):
        between = (gains[last] or 0.0) - (gains[first] or 0.0)
        shares = attribute(between, [gain or 0.0 for gain in static[first:last]])
        source = "measured" if last - first == 1 else "attributed"
        found += [(share, source) for share in shares]
    return found + [(gain, "" if gain is None else "static") for gain in static[len(found) :]]


def _regret(
    graph: DecisionGraph | None, before: State | None, after: State | None, transform: str
) -> float | None:
    if graph is None or before is None or after is None:
        return None
    for edge in graph.out(before.id):
        if edge.target == after.id and edge.label == transform:
            return regret(graph, edge)
    return None
