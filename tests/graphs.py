"""Small decision graphs by hand, for tests of queries, files and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tirgym.harness.decision_graph import DecisionGraph, Edge, Root, State
from tirgym.harness.target import Target

__all__ = ["TARGET", "by_hand"]

TARGET = Target("llvm", "skylake-avx512", 1)

Told = str | float | None
"""Of a state: a speedup, a status, or nothing."""


def by_hand(
    states: Mapping[str, Told],
    edges: Sequence[tuple[str, str, str]],
    *,
    workload: str = "tirgym://core-v0/softmax?m=8&n=16&dtype=float32",
    points: Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]] | None = None,
    costs: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
) -> DecisionGraph:
    """States by name, the first is the root; edges as (source, target, label).

    `points`: open question, options and their costs by state. `costs`: static cost, 100 µs otherwise.
    """
    points, costs = points or {}, costs or {}
    made = [
        _state(name, told, points.get(name, ("", (), ())), costs) for name, told in states.items()
    ]
    by_name = {state.id: state for state in made}
    return DecisionGraph(
        [Root(next(iter(states)), workload, TARGET)],
        made,
        [_edge(i, by_name[a], by_name[b], label) for i, (a, b, label) in enumerate(edges)],
        warnings,
    )


def _state(
    name: str,
    told: Told,
    point: tuple[str, tuple[str, ...], tuple[float, ...]],
    costs: Mapping[str, float],
) -> State:
    speedup = told if isinstance(told, float) else None
    status = "passed" if speedup is not None else str(told or "")
    question, options, costs_us = point
    return State(
        id=name,
        root=0,
        ir_key=f"ir-{name}",
        point=question,
        visits=1,
        runs=1,
        cost_us=costs.get(name, 100.0),
        status=status,
        level="training" if status else "",
        latency_us=None if speedup is None else 100.0 / speedup,
        speedup=speedup,
        code_key=f"code-{name}" if status else "",
        message="",
        options=options,
        costs_us=costs_us,
    )


def _edge(number: int, source: State, target: State, label: str) -> Edge:
    measured = source.speedup is not None and target.speedup is not None
    gain = math.log(target.speedup / source.speedup) if measured else None  # type: ignore[operator]
    return Edge(
        id=number,
        source=source.id,
        target=target.id,
        label=label,
        point=source.point,
        transforms=() if source.point else (label,),
        visits=1,
        cost_gain=math.log((source.cost_us or 1.0) / (target.cost_us or 1.0)),
        weight=0.5 if source.point else None,
        predicted_gain=None,
        gain=gain,
        gain_from="measured" if measured else "",
    )
