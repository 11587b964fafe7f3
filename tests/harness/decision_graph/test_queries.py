"""Best path, regret and frontier on graphs whose answers are known."""

from __future__ import annotations

import math

import pytest
from graphs import by_hand
from small import SMALL, TARGET, make

from tirgym.errors import UnknownNameError
from tirgym.harness.decision_graph import (
    DecisionGraph,
    Edge,
    LegalTransforms,
    Runs,
    State,
    best_path,
    best_state,
    build_graph,
    frontier,
    promise,
    regret,
)
from tirgym.harness.run_record import Visit
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.transforms.base import SlotLimits

DIAMOND = by_hand(
    {"root": 1.0, "a": None, "b": 2.0, "end": 4.0, "dead": "wrong_result", "c": None},
    [
        ("root", "a", "one"),
        ("a", "b", "two"),
        ("b", "end", "three"),
        ("root", "c", "short cut"),
        ("c", "end", "there"),
        ("root", "dead", "bad"),
    ],
)


def edge(graph: DecisionGraph, label: str) -> Edge:
    return next(found for found in graph.edges if found.label == label)


def test_the_best_path_is_a_shortest_one() -> None:
    assert [found.label for found in best_path(DIAMOND)] == ["short cut", "there"]
    best = best_state(DIAMOND)
    assert best is not None
    assert best.id == "end"


def test_the_best_path_of_equally_short_ones_is_the_most_visited() -> None:
    from dataclasses import replace

    graph = by_hand(
        {"root": 1.0, "a": None, "b": None, "end": 4.0},
        [("root", "a", "1"), ("root", "b", "2"), ("a", "end", "3"), ("b", "end", "4")],
    )
    assert [found.label for found in best_path(graph)] == ["1", "3"]
    busy = [replace(e, visits=5) if e.label == "4" else e for e in graph.edges]
    graph = DecisionGraph(graph.roots, graph.states.values(), busy)
    assert [found.label for found in best_path(graph)] == ["2", "4"]


def test_nothing_measured_or_nothing_better_is_an_empty_path() -> None:
    assert best_path(by_hand({"root": None, "a": "crash"}, [("root", "a", "x")])) == []
    assert best_state(by_hand({"root": None}, [])) is None
    slower = by_hand({"root": 1.0, "a": 0.5}, [("root", "a", "x")])
    assert best_path(slower) == []
    assert best_state(slower) == slower.state("root")


def test_reach_survives_cycles() -> None:
    graph = by_hand(
        {"root": 1.0, "a": 0.5, "b": 3.0},
        [("root", "a", "there"), ("a", "root", "back"), ("root", "b", "on"), ("b", "b", "stay")],
    )
    assert {name: state.id for name, state in graph.reach.items()} == {
        "root": "b",
        "a": "b",
        "b": "b",
    }
    assert graph.depths == {"root": 0, "a": 1, "b": 1}


def test_regret_is_best_otherwise_minus_best_through() -> None:
    graph = by_hand(
        {"root": 1.0, "a": 0.5, "a1": 3.0, "b": 2.0, "c": None},
        [("root", "a", "a"), ("a", "a1", "on"), ("root", "b", "b"), ("root", "c", "c")],
    )
    assert regret(graph, edge(graph, "a")) == pytest.approx(math.log(2.0 / 3.0))
    assert regret(graph, edge(graph, "b")) == pytest.approx(math.log(3.0 / 2.0))
    assert regret(graph, edge(graph, "c")) is None  # nothing was measured behind it
    # to stop at a measured state is a choice as well
    assert regret(graph, edge(graph, "on")) == pytest.approx(math.log(0.5 / 3.0))


def test_an_open_question_cannot_be_stopped_at() -> None:
    graph = by_hand(
        {"root": 1.0, "q": 5.0, "x": 2.0, "y": 3.0},
        [("root", "q", "open questions"), ("q", "x", "p: x"), ("q", "y", "p: y")],
        points={"q": ("p", ("x", "y"), ())},
    )
    assert regret(graph, edge(graph, "p: x")) == pytest.approx(math.log(3.0 / 2.0))
    assert regret(graph, edge(graph, "p: y")) == pytest.approx(math.log(2.0 / 3.0))


def test_a_choice_without_alternative_has_no_regret() -> None:
    graph = by_hand({"root": None, "a": 2.0}, [("root", "a", "only")])
    assert regret(graph, edge(graph, "only")) is None


def test_the_regret_of_a_slow_alternative_at_speedup_one() -> None:
    """A gain of exactly 0 is a number like any other."""
    graph = by_hand({"root": 1.0, "a": 2.0}, [("root", "a", "only")])
    assert regret(graph, edge(graph, "only")) == pytest.approx(-math.log(2.0))


def test_promise_goes_on_from_what_was_measured_last() -> None:
    graph = by_hand(
        {"root": 1.0, "m": 4.0, "u": None, "v": None, "dead": "flaky"},
        [("root", "m", "1"), ("m", "u", "2"), ("root", "v", "3"), ("root", "dead", "4")],
        costs={"root": 100.0, "m": 50.0, "u": 25.0, "v": 10.0},
    )
    assert promise(graph, graph.state("m")) == pytest.approx(math.log(4.0))
    assert promise(graph, graph.state("u")) == pytest.approx(math.log(8.0))
    assert promise(graph, graph.state("v")) == pytest.approx(math.log(10.0))
    assert promise(graph, graph.state("dead")) is None


def test_the_frontier_has_promising_unmeasured_leaves() -> None:
    graph = by_hand(
        {"root": 1.0, "m": 4.0, "u": None, "worse": None, "dead": "wrong_result", "mid": None},
        [
            ("root", "m", "1"),
            ("m", "u", "2"),
            ("m", "worse", "3"),
            ("root", "dead", "4"),
            ("root", "mid", "5"),
            ("mid", "m", "6"),
        ],
        costs={"m": 50.0, "u": 25.0, "worse": 60.0},
    )
    assert [(c.state.id, c.kind) for c in frontier(graph)] == [("u", "unmeasured")]


def test_the_frontier_has_untried_options_ranked_by_their_cost() -> None:
    graph = by_hand(
        {"root": 1.0, "q": 1.0, "r": None, "x": 2.0},
        [("root", "q", "open questions"), ("q", "x", "p: x"), ("x", "r", "more")],
        points={
            "q": ("p", ("x", "y", "z"), (100.0, 10.0, 20.0)),
            "r": ("s", ("all",), ()),
        },
    )
    first, second = frontier(graph)
    assert (first.state.id, first.untried) == ("q", ("y", "z"))
    assert first.promise == pytest.approx(math.log(10.0))  # what y promises
    assert (second.state.id, second.untried) == ("r", ("all",))
    assert frontier(graph, limit=1) == [first]
    assert frontier(graph, limit=0) == []


def test_legal_transforms_are_asked_about_only_as_far_as_needed() -> None:
    asked: list[str] = []

    def legal(state: State) -> list[str]:
        asked.append(state.id)
        return ["one", "new"]

    (found,) = frontier(DIAMOND, limit=1, legal=legal)
    assert asked == ["end"]
    assert (found.state.id, found.untried) == ("end", ("one", "new"))
    every = frontier(DIAMOND, legal=legal)
    assert {c.state.id for c in every} == {"root", "a", "b", "c", "end"}
    assert next(c.untried for c in every if c.state.id == "root") == ("new",)


def test_legal_transforms_are_those_of_the_mask() -> None:
    vocabulary = default_vocabulary(limits=SlotLimits(4, 2, 1, (2, 4)))
    step = "Split(loop=1, factor=4)"
    made = make(SMALL["add"], step)
    line = Visit("r", "a", 0, SMALL["add"], TARGET, (step,), made.ir_key)
    graph = build_graph(Runs((line,)))
    legal = LegalTransforms(graph, vocabulary)(graph.state(f"0:{made.ir_key}"))
    assert legal == tuple(str(t) for t in vocabulary if made.why_illegal(t) is None)
    root = graph.state(graph.roots[0].state)
    untried = frontier(graph, legal=LegalTransforms(graph, vocabulary))
    assert step not in next(c.untried for c in untried if c.state == root)


def test_the_transforms_of_a_path_make_its_state() -> None:
    steps = ("Split(loop=1, factor=4)", "Reorder(loop=0)", "Split(loop=0, factor=2)")
    made = make(SMALL["add"], *steps)
    line = Visit(
        "r", "a", 0, SMALL["add"], TARGET, steps, made.ir_key,
        status="passed", level="full", speedup=2.0, latency_us=1.0,
    )  # fmt: skip
    graph = build_graph(Runs((line,)))
    best = best_state(graph)
    assert best is not None
    assert make(SMALL["add"], *graph.transforms(best.id)).ir_key == best.ir_key == made.ir_key


def test_an_unknown_state_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'root'"):
        DIAMOND.out("rooot")
