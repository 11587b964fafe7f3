"""The evolutionary agent: what it breeds is legal, and it gets better by what it measures."""

from __future__ import annotations

import pytest
from fakes import FakeEvaluator
from small import SMALL, TARGET
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines.evolutionary import EvolutionaryAgent
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Budget
from tirgym.harness.decisions import SPACES
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import load_workload

pytestmark = pytest.mark.usefixtures("toy_compiler")


def play(agent: EvolutionaryAgent, trials: int = 24) -> SearchRun:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(trials), 1)
    run.run(agent)
    return run


@pytest.mark.parametrize(
    ("options", "accepted"),
    [({"population": 0}, "at least 1"), ({"batch": 0}, "at least 1"), ({"cross": 1.5}, "0 to 1")],
)
def test_options_out_of_range_are_refused(options: dict[str, float], accepted: str) -> None:
    with pytest.raises(InvalidValueError, match=accepted):
        EvolutionaryAgent(**options)


def test_it_learns_what_the_cost_model_does_not_know() -> None:
    best = play(EvolutionaryAgent(), 40).ranked()[0]
    assert (best.evaluation.speedup or 0.0) > 10.9  # dials 5 and 3; the model knows only the first


def test_it_plays_an_action_table_too() -> None:
    best = play(EvolutionaryAgent(space="primitive"), 40).ranked()[0]
    assert (best.evaluation.speedup or 0.0) > 5.0  # the first dial alone gives 3
    with pytest.raises(UnknownNameError, match="decision, primitive, macro, both"):
        EvolutionaryAgent(space="tiles")


def test_it_stops_early_when_it_gains_nothing() -> None:
    run = play(EvolutionaryAgent(patience=1, gain=10.0, batch=4), 200)
    assert run.stopped is Stopped.FINISHED
    assert run.used <= 1 + 2 * 4


def test_it_proposes_legal_tensorir_programs_and_no_code_twice() -> None:
    start = TensorIRProgram.start(load_workload(SMALL["matmul"]), TARGET)
    cost = StaticCostModel()

    def speedup(program: Program) -> float:
        return cost.predict_us(start) / cost.predict_us(program)

    run = SearchRun(
        start, default_vocabulary(), cost, FakeEvaluator(otherwise=speedup), Budget(12), 0
    )
    run.run(EvolutionaryAgent(samples=8, population=8, generations=1, batch=4))
    keys = [candidate.program.ir_key for candidate in run.history]
    assert run.used == 12
    assert len(set(keys)) == len(keys)
    assert max(speedup(candidate.program) for candidate in run.history) > 3.0


def test_a_backend_without_a_design_space_is_named() -> None:
    start = TensorIRProgram.start(load_workload(SMALL["add"]), Target("abacus", "beads", 1))
    run = SearchRun(start, default_vocabulary(), StaticCostModel(), FakeEvaluator(), Budget(2), 0)
    with pytest.raises(UnknownNameError, match="design space 'abacus'"):
        run.run(EvolutionaryAgent())


def test_it_ends_at_once_where_nothing_can_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPACES, "toy", "toy:EmptySpace")
    run = play(EvolutionaryAgent(samples=4))
    assert run.stopped is Stopped.FINISHED
    assert run.used == 0
    assert [candidate.program.ir_key for candidate in run.history] == [toy_start().ir_key]
