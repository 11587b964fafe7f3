"""Which step of a trace lost the time: measured, attributed, static."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from toy import ToyCost, ToyEvaluator, ToyProgram, Turn, toy_start, toy_workload, true_us

from tirgym.errors import TargetMismatchError
from tirgym.harness import replay
from tirgym.harness.decision_graph import DecisionGraph, Runs, build_graph, lost_time
from tirgym.harness.run_record import Visit
from tirgym.harness.trace import Trace

pytestmark = pytest.mark.usefixtures("toy_transforms")

SLOWER = ((0, 4), (1, 2), (1, 4), (0, 1))
"""Turning dial 1 to 6 is too far: it should be at 3."""


@pytest.fixture(autouse=True)
def toy_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "load_workload", lambda uri: toy_workload())


def program(turns: tuple[tuple[int, int], ...]) -> ToyProgram:
    made = toy_start()
    for dial, by in turns:
        made = made.apply(Turn(dial, by))
    return made


def trace_of(made: ToyProgram, **more: Any) -> Trace:
    return Trace(made.workload.uri, made.target, tuple(map(str, made.steps)), made.ir_key, **more)


def graph_of(*turns: tuple[tuple[int, int], ...]) -> DecisionGraph:
    """Every one of `turns`, measured."""
    visits = []
    for one in turns:
        made = program(one)
        evaluation = ToyEvaluator().evaluate(made)
        visits.append(
            Visit(
                "r", "a", 0, made.workload.uri, made.target, tuple(map(str, made.steps)),
                made.ir_key, status="passed", level="training", speedup=evaluation.speedup,
            )
        )  # fmt: skip
    return build_graph(Runs(tuple(visits)), cost=ToyCost(), load=lambda uri: toy_workload())


def test_measuring_every_state_finds_the_step() -> None:
    found = lost_time(trace_of(program(SLOWER)), evaluator=ToyEvaluator(), cost=ToyCost())
    times = [true_us(program(SLOWER[:number]).dials) for number in range(len(SLOWER) + 1)]
    gains = [math.log(a / b) for a, b in pairwise(times)]
    assert [step.gain for step in found.steps] == pytest.approx(gains)
    assert {step.gain_from for step in found.steps} == {"measured"}
    assert found.slowest is not None
    assert found.slowest.transform == "Turn(dial=1, by=4)"
    assert found.slowest.number == 3
    assert found.departure is None  # without a graph there is nothing to compare with


def test_without_measuring_the_gain_is_attributed_between_what_the_graph_has() -> None:
    graph = graph_of(SLOWER[:1], SLOWER)
    found = lost_time(trace_of(program(SLOWER)), graph, cost=ToyCost())
    assert [step.gain_from for step in found.steps] == ["measured"] + ["attributed"] * 3
    total = math.log(true_us((0, 0)) / true_us(program(SLOWER).dials))
    assert sum(step.gain or 0.0 for step in found.steps) == pytest.approx(total)
    assert [step.speedup is None for step in found.steps] == [False, True, True, False]


def test_with_nothing_measured_the_static_cost_speaks() -> None:
    found = lost_time(trace_of(program(((0, 8), (1, 1)))), cost=ToyCost())
    assert [step.gain_from for step in found.steps] == ["static", "static"]
    assert [step.gain for step in found.steps] == [step.cost_gain for step in found.steps]


def test_the_departure_is_where_a_better_way_was_left() -> None:
    best = ((0, 4), (0, 1), (1, 2), (1, 1))
    slow = ((0, 4), (0, 4))
    found = lost_time(trace_of(program(slow)), graph_of(best, slow), cost=ToyCost())
    assert [step.regret is not None and step.regret > 0 for step in found.steps] == [False, True]
    assert found.departure == found.steps[1]
    through = true_us(program(slow).dials)
    assert found.departure.regret == pytest.approx(math.log(through / true_us((5, 3))))
    good = lost_time(trace_of(program(best)), graph_of(best, slow), cost=ToyCost())
    assert good.departure is None


def test_an_empty_trace_lost_nothing() -> None:
    found = lost_time(trace_of(toy_start()), cost=ToyCost())
    assert (found.steps, found.slowest, found.departure) == ((), None, None)


def test_a_trace_that_makes_something_else_is_refused() -> None:
    trace = Trace(toy_start().workload.uri, toy_start().target, (), "0" * 16)
    with pytest.raises(TargetMismatchError):
        lost_time(trace, cost=ToyCost())
