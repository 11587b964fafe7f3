"""From recorded runs to one graph: merging, counting, gains, what is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small import SMALL, TARGET, make
from toy import (
    ToyCost,
    ToyEvaluator,
    ToyProgram,
    ToySpace,
    Turn,
    toy_start,
    toy_vocabulary,
    toy_workload,
    true_us,
)

from tirgym.baselines.evolutionary import EvolutionaryAgent
from tirgym.baselines.random_walk import RandomAgent
from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Budget
from tirgym.harness.decision_graph import DecisionGraph, Runs, build_graph, read_runs
from tirgym.harness.decisions import CallbackAgent, Recommendation, Walk
from tirgym.harness.run_record import RunRecord, Visit
from tirgym.harness.search_run import SearchRun
from tirgym.harness.status import Status
from tirgym.harness.transforms import parse_transform

pytestmark = pytest.mark.usefixtures("toy_transforms")


def toy_graph(runs: Runs, **keywords: Any) -> DecisionGraph:
    return build_graph(runs, cost=ToyCost(), load=lambda uri: toy_workload(), **keywords)


def program(*turns: tuple[int, int]) -> ToyProgram:
    made = toy_start()
    for dial, by in turns:
        made = made.apply(Turn(dial, by))
    return made


def visit(made: ToyProgram, speedup: float | None = None, **more: Any) -> Visit:
    """A candidate that was walked as a whole."""
    if speedup is not None:
        more = {"status": "passed", "level": "training", "speedup": speedup, **more}
    return replace(
        Visit(
            "r", "a", 0, made.workload.uri, made.target, tuple(map(str, made.steps)), made.ir_key
        ),
        **more,
    )


def graph_of(*visits: Visit) -> DecisionGraph:
    return toy_graph(Runs(visits))


def labels(graph: DecisionGraph) -> list[str]:
    return [edge.label for edge in graph.edges]


def test_a_search_becomes_a_graph_of_every_state_on_its_ways(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "random", 0)
    run = SearchRun(
        toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(30), 0, record.on_trial
    )
    run.run(RandomAgent())
    graph = toy_graph(read_runs(tmp_path))
    expected = set()
    for candidate in run.history:
        made = toy_start()
        expected.add(made.ir_key)
        for step in candidate.program.steps:
            made = made.apply(step)
            expected.add(made.ir_key)
    assert {state.ir_key for state in graph.states.values()} == expected
    assert len(graph.states) == len(expected)
    by_key = {state.ir_key: state for state in graph.states.values()}
    for candidate in run.history:
        state = by_key[candidate.program.ir_key]
        assert state.speedup == candidate.evaluation.speedup
        assert state.status == "passed"
    assert graph.states[graph.roots[0].state].visits == len(run.history)


def test_states_merge_and_visits_count() -> None:
    one, other = program((0, 4), (1, 2)), program((1, 2), (0, 4))
    assert one.ir_key == other.ir_key
    graph = graph_of(visit(one), visit(other), visit(one, run="s"))
    assert len(graph.states) == 4  # the root, two ways to go, one end
    end = next(state for state in graph.states.values() if state.ir_key == one.ir_key)
    assert (end.visits, end.runs, len(graph.into(end.id))) == (3, 2, 2)
    assert {edge.label: edge.visits for edge in graph.out(graph.roots[0].state)} == {
        "Turn(dial=0, by=4)": 2,
        "Turn(dial=1, by=2)": 1,
    }


def test_static_cost_comes_from_the_model() -> None:
    graph = graph_of(visit(program((0, 4), (1, 2))))
    first, second = graph.edges
    assert graph.state(first.target).cost_us == true_us((4, 3))
    assert first.cost_gain == pytest.approx(math.log(true_us((0, 3)) / true_us((4, 3))))
    assert second.cost_gain == 0.0  # the model is blind to the second dial


def test_gains_between_measured_states_are_measured() -> None:
    graph = graph_of(
        visit(program(), 1.0), visit(program((0, 4)), 4.0), visit(program((0, 4), (1, 2)), 3.0)
    )
    first, second = graph.edges
    assert first.gain == pytest.approx(math.log(4.0))
    assert second.gain == pytest.approx(math.log(3.0 / 4.0))
    assert (first.gain_from, second.gain_from) == ("measured", "measured")


def test_gains_over_unmeasured_states_add_up_to_what_was_measured() -> None:
    graph = graph_of(visit(program((0, 4), (1, 2), (0, 1)), 5.0))
    assert [edge.gain_from for edge in graph.edges] == ["attributed"] * 3
    gains = [edge.gain or 0.0 for edge in graph.edges]
    assert sum(gains) == pytest.approx(math.log(5.0))
    static = [edge.cost_gain or 0.0 for edge in graph.edges]
    differences = [gain - cost for gain, cost in zip(gains, static, strict=True)]
    assert differences == pytest.approx([differences[0]] * 3)  # equal shares of the model's error


def test_an_edge_on_two_ways_gets_the_mean_and_an_unmeasured_end_nothing() -> None:
    graph = graph_of(
        visit(program((0, 4), (1, 2)), 2.0),
        visit(program((0, 4), (1, 4)), 8.0),
        visit(program((2, 1))),
    )
    by_label = {edge.label: edge for edge in graph.edges}
    alone = [
        graph_of(visit(program((0, 4), (1, by)), speedup)).edges[0].gain
        for by, speedup in ((2, 2.0), (4, 8.0))
    ]
    assert by_label["Turn(dial=0, by=4)"].gain == pytest.approx(sum(g or 0.0 for g in alone) / 2)
    assert by_label["Turn(dial=2, by=1)"].gain is None
    assert by_label["Turn(dial=2, by=1)"].gain_from == ""


def verdicts(*pairs: tuple[str, str, float | None]) -> tuple[str, float | None]:
    made = program((0, 4))
    graph = graph_of(*(visit(made, s, status=status, level=level) for status, level, s in pairs))
    state = graph.state(graph.edges[0].target)
    return state.status, state.speedup


@pytest.mark.parametrize(
    ("pairs", "settled"),
    [
        ([("passed", "training", 2.0), ("passed", "training", 3.0)], ("passed", 3.0)),
        ([("passed", "training", 3.0), ("passed", "full", 2.0)], ("passed", 2.0)),
        ([("passed", "training", 3.0), ("wrong_result", "training", None)], ("wrong_result", None)),
        ([("flaky", "training", None), ("passed", "full", 3.0)], ("flaky", None)),
        ([("noisy", "full", None), ("passed", "training", 3.0)], ("passed", 3.0)),
        ([("too_slow", "full", None), ("passed", "training", 3.0)], ("too_slow", None)),
        ([("timeout", "training", None), ("passed", "training", 3.0)], ("passed", 3.0)),
        ([("noisy", "training", None), ("crash", "training", None)], ("crash", None)),
    ],
)
def test_several_verdicts_become_one(
    pairs: list[tuple[str, str, float | None]], settled: tuple[str, float | None]
) -> None:
    assert verdicts(*pairs) == settled
    assert verdicts(*reversed(pairs)) == settled


def walk_from(start: ToyProgram) -> Walk:
    return Walk.begin(start, ToySpace().tasks(start))


def answering(options: Sequence[int], confidence: float) -> CallbackAgent:
    answers = iter(options)
    return CallbackAgent(lambda point: Recommendation(next(answers), confidence, 1.5))


def test_decision_episodes_keep_questions_apart_and_confidence(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "decider")
    for options, confidence in (((0, 0, 4), 0.5), ((0, 0, 4), 0.9), ((4, 0, 0), 0.7)):
        walk_from(toy_start()).follow(answering(options, confidence), record.on_answer)
    graph = toy_graph(read_runs(tmp_path))
    root = graph.roots[0].state
    (opening,) = graph.out(root)
    assert (opening.label, opening.visits) == ("open questions", 3)
    first = graph.state(opening.target)
    assert (first.point, first.visits, first.options) == ("dial0.tile", 3, tuple("012345678"))
    stay, move = sorted(graph.out(first.id), key=lambda edge: edge.label)
    assert (stay.label, stay.visits, stay.point) == ("dial0.tile: 0", 2, "dial0.tile")
    assert stay.weight == pytest.approx(0.7)
    assert stay.predicted_gain == 1.5
    assert (move.label, move.weight, move.transforms) == (
        "dial0.tile: 4",
        0.7,
        ("Turn(dial=0, by=4)",),
    )
    after = graph.state(stay.target)
    assert after.ir_key == first.ir_key  # the same IR under the next question is another state
    assert (after.point, stay.gain, stay.gain_from) == ("dial1.tile", 0.0, "same IR")
    assert graph.state(graph.path(f"0:{program((2, 4)).ir_key}")[-1].target).point == ""


def test_finished_decisions_and_transforms_meet_in_one_state(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "both")
    walk_from(toy_start()).follow(answering((4, 0, 0), 1.0), record.on_answer)
    made = program((0, 4))
    record.record(made, ToyEvaluator().evaluate(made))
    graph = toy_graph(read_runs(tmp_path))
    end = f"0:{made.ir_key}"
    assert graph.state(end).visits == 2
    assert {edge.label for edge in graph.into(end)} == {"Turn(dial=0, by=4)", "dial2.tile: 0"}
    asked = [state for state in graph.states.values() if state.ir_key == made.ir_key]
    assert {state.speedup for state in asked} == {graph.state(end).speedup}


def test_the_programs_of_a_search_that_decides_are_shown_by_their_answers(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "evolutionary", 0)
    run = SearchRun(
        toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(20), 0, record.on_trial
    )
    run.run(EvolutionaryAgent())
    graph = toy_graph(read_runs(tmp_path))
    assert graph.warnings == ()
    decided = [candidate for candidate in run.history if candidate.program.steps]
    assert len(decided) >= 20
    for candidate in decided:
        end = graph.state(f"0:{candidate.program.ir_key}")
        assert end.speedup == candidate.evaluation.speedup
        points = [edge.point for edge in graph.path(end.id)]
        assert points == ["", "dial0.tile", "dial1.tile", "dial2.tile"]
        made = toy_start()
        for text in graph.transforms(end.id):
            made = made.apply(parse_transform(text))
        assert made.ir_key == candidate.program.ir_key
    (opening,) = [edge for edge in graph.out(graph.roots[0].state) if not edge.transforms]
    first = graph.state(opening.target)
    assert first.visits == sum(edge.visits for edge in graph.out(first.id)) == len(run.history) - 1
    assert {edge.gain is None for edge in graph.edges} == {False}


def test_answers_that_lead_elsewhere_by_now_give_way_to_transforms() -> None:
    made = program((0, 4))
    ways = ((("dial0.tile", 3), ("dial1.tile", 0), ("dial2.tile", 0)), (("dial9.tile", 4),))
    for answers in ways:
        graph = graph_of(visit(made, 2.0, answers=answers))
        assert labels(graph) == ["Turn(dial=0, by=4)"]
        assert "shown by transforms" in graph.warnings[0]


def test_a_gain_of_decisions_falls_on_those_that_changed_the_ir(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    done = walk_from(toy_start()).follow(answering((4, 0, 2), 1.0), record.on_answer).program
    record.record(done, ToyEvaluator().evaluate(done), before=done)
    graph = toy_graph(read_runs(tmp_path))
    changed = [edge for edge in graph.edges if edge.transforms]
    assert [edge.point for edge in changed] == ["dial0.tile", "dial2.tile"]
    total = graph.state(f"0:{done.ir_key}").gain
    assert sum(edge.gain or 0.0 for edge in changed) == pytest.approx(total)
    assert {edge.gain for edge in graph.edges if not edge.transforms} == {0.0}


def test_steps_of_an_episode_count_once_and_a_verdict_is_no_visit(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    for _ in range(2):
        at = toy_start()
        for turn in (Turn(0, 4), Turn(1, 2)):
            after = at.apply(turn)
            record.record(after, before=at)
            at = after
        record.record(at, ToyEvaluator().evaluate(at), before=at)
    graph = toy_graph(read_runs(tmp_path))
    assert [state.visits for state in graph.states.values()] == [2, 2, 2]
    assert [edge.visits for edge in graph.edges] == [2, 2]
    assert graph.reach[graph.roots[0].state].ir_key == at.ir_key


def test_workloads_and_targets_have_roots_of_their_own() -> None:
    made = program((0, 4))
    other = replace(visit(made), target=replace(made.target, num_threads=2))
    graph = graph_of(visit(made), other)
    assert [root.target.num_threads for root in graph.roots] == [1, 2]
    assert len(graph.states) == 4
    assert {edge.source[0] == edge.target[0] for edge in graph.edges} == {True}
    assert [edge.id for edge in graph.edges] == [0, 1]


def test_what_cannot_be_replayed_is_left_out_with_a_warning() -> None:
    made = program((0, 4))
    bad = replace(visit(made), transforms=("Turn(dial=0, by=4)",) * 3)
    unknown = replace(visit(made), transforms=("Turnip(dial=0)",))
    changed = replace(visit(made), ir_key="0" * 16)
    graph = graph_of(visit(made), bad, unknown, changed)
    assert len(graph.states) == 2
    assert len(graph.warnings) == 2
    assert "2 visits" in graph.warnings[0]
    assert "another IR" in graph.warnings[1]
    with pytest.raises(InvalidValueError, match="another IR"):
        graph_of(changed)


def test_progress_counts_different_ways() -> None:
    told: list[tuple[int, int]] = []
    one, other = visit(program((0, 4))), visit(program((1, 4)))
    toy_graph(Runs((one, other, one)), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_the_order_of_the_result_depends_on_the_runs_alone() -> None:
    visits = [visit(program((0, 4), (1, by)), float(by)) for by in (1, 2, 4)]
    assert labels(graph_of(*visits)) == labels(graph_of(*visits))
    assert list(graph_of(*visits).states) == list(graph_of(*visits).states)


def test_real_programs_replay_and_have_a_static_cost() -> None:
    steps = ("Split(loop=1, factor=4)", "Vectorize(loop=2)")
    made = make(SMALL["add"], *steps)
    line = Visit("r", "a", 0, SMALL["add"], TARGET, steps, made.ir_key, status=Status.NOISY.value)
    graph = build_graph(Runs((line,)))
    keys = [make(SMALL["add"], *steps[:number]).ir_key for number in range(3)]
    assert [state.ir_key for state in graph.states.values()] == keys
    assert all((state.cost_us or 0.0) > 0 for state in graph.states.values())
    assert graph.edges[1].cost_gain is not None
