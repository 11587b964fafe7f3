"""The tree search: it learns, merges what meets, keeps to its budget, and plays every vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeEvaluator
from small import SMALL, TARGET
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines import mcts
from tirgym.baselines.choices import SCHEDULE_SPACES, position
from tirgym.baselines.mcts import Args, MCTSAgent
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Budget
from tirgym.harness.decisions import SPACES as DESIGN_SPACES
from tirgym.harness.macros.base import Macro
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import load_workload

pytestmark = pytest.mark.usefixtures("toy_compiler")


def play(trials: int = 24, seed: int = 1, **options: Any) -> SearchRun:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(trials), seed)
    run.run(MCTSAgent(**options))
    return run


@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        ({"simulations": 0}, "at least 1"),
        ({"batch": 0}, "at least 1"),
        ({"peak": 1.5}, "0 to 1"),
        ({"exploration": 0.0}, "above 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], accepted: str) -> None:
    with pytest.raises(InvalidValueError, match=accepted):
        MCTSAgent(**options)


def test_a_space_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownNameError, match="decision, primitive, macro, both"):
        MCTSAgent(space="macros")
    with pytest.raises(UnknownNameError, match="backend with a vocabulary 'toy'"):
        play(space="macro")


@pytest.mark.parametrize("space", ["decision", "primitive"])
def test_it_learns_what_the_cost_model_does_not_know(space: str) -> None:
    best = play(40, space=space).ranked()[0]
    assert (best.evaluation.speedup or 0.0) > 10.9  # dials 5 and 3; the model knows only the first


@pytest.mark.parametrize("space", ["decision", "primitive"])
def test_a_seed_fixes_the_search(space: str) -> None:
    def keys(seed: int) -> list[str]:
        return [c.program.ir_key for c in play(seed=seed, space=space).history]

    assert keys(3) == keys(3)
    assert keys(3) != keys(4)


def test_it_stops_early_when_it_gains_nothing() -> None:
    run = play(200, patience=1, gain=10.0, batch=4)
    assert run.stopped is Stopped.FINISHED
    assert run.used <= 1 + 2 * 4


def test_it_ends_when_it_has_been_everywhere() -> None:
    run = play(2000, space="primitive", depth=2, batch=16)
    assert run.stopped is Stopped.FINISHED
    reached = {c.program.text() for c in run.history}
    assert reached >= {"dials (8, 0, 0)", "dials (1, 4, 0)", "dials (0, 0, 0)"}
    assert len(reached) == len({c.program.ir_key for c in run.history})
    assert not any("(5, 4" in text for text in reached)  # three turns away


def test_it_ends_at_once_where_nothing_can_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DESIGN_SPACES, "toy", "toy:EmptySpace")
    run = play()
    assert (run.stopped, run.used) == (Stopped.FINISHED, 0)
    assert [candidate.program.ir_key for candidate in run.history] == [toy_start().ir_key]


def test_it_asks_no_more_once_the_time_is_spent() -> None:
    now = [0.0]

    def slow(calls: int) -> None:
        now[0] += 1.0

    run = SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        ToyEvaluator(on_call=slow),
        Budget(100, seconds=5.5),
        clock=lambda: now[0],
    )
    run.run(MCTSAgent())
    assert run.used <= 6


def test_ways_that_meet_are_one_node() -> None:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(8), 0)
    game = mcts._Run(Args(space="primitive", depth=6), run.search)
    game.play()
    simulated = [node for simulation in game.simulations for node in simulation.nodes]
    states = {position(node.state) for node in simulated}
    assert len({id(node) for node in simulated}) == len(states)
    fathers: dict[int, set[int]] = {}
    for node in game.nodes.values():
        for edge in node.edges:
            fathers.setdefault(id(edge.child), set()).add(id(node))
    assert max(map(len, fathers.values())) > 1


def test_visits_and_values_add_up() -> None:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(17), 0)
    game = mcts._Run(Args(), run.search)
    game.play()
    root = game.simulations[0].nodes[0]
    assert root.visits == len(game.simulations)
    values = [game._value(simulation.individual) for simulation in game.simulations]
    assert root.total == pytest.approx(sum(values))
    assert root.best == max(values)
    assert min(values) >= 0.0


# -- TensorIR -------------------------------------------------------------------------------


@pytest.mark.parametrize("space", SCHEDULE_SPACES)
def test_it_proposes_legal_tensorir_programs_and_no_code_twice(space: str) -> None:
    start = TensorIRProgram.start(load_workload(SMALL["matmul"]), TARGET)
    cost = StaticCostModel()

    def speedup(program: Program) -> float:
        return cost.predict_us(start) / cost.predict_us(program)

    run = SearchRun(
        start, default_vocabulary(), cost, FakeEvaluator(otherwise=speedup), Budget(12), 0
    )
    run.run(MCTSAgent(space=space, simulations=16, batch=4, depth=8))
    keys = [candidate.program.ir_key for candidate in run.history]
    assert run.used == 12
    assert len(set(keys)) == len(keys)
    assert max(speedup(candidate.program) for candidate in run.history) > 1.5
    steps = [step for candidate in run.history for step in candidate.program.steps]
    assert not any(isinstance(step, Macro) for step in steps)


def test_a_backend_without_a_design_space_is_named() -> None:
    start = TensorIRProgram.start(load_workload(SMALL["add"]), Target("abacus", "beads", 1))
    run = SearchRun(start, default_vocabulary(), StaticCostModel(), FakeEvaluator(), Budget(2), 0)
    with pytest.raises(UnknownNameError, match="design space 'abacus'"):
        run.run(MCTSAgent())
