"""MetaSchedule as an agent: it plays by the run's budget and learns from the run's verdicts."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from fakes import FakeEvaluator
from small import SMALL, TARGET
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines import metaschedule
from tirgym.baselines.metaschedule import MetaScheduleAgent
from tirgym.errors import InvalidValueError, MissingExtraError
from tirgym.harness.agent import Budget
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.registry import load_workload

installed = pytest.mark.skipif(
    find_spec("xgboost") is None, reason="xgboost is not installed (extra: peers)"
)


def play(trials: int, seed: int) -> SearchRun:
    start = TensorIRProgram.start(load_workload(SMALL["matmul"]), TARGET)
    cost = StaticCostModel()

    def speedup(program: Program) -> float:
        return cost.predict_us(start) / cost.predict_us(program)

    run = SearchRun(
        start, default_vocabulary(), cost, FakeEvaluator(otherwise=speedup), Budget(trials), seed
    )
    run.run(MetaScheduleAgent(batch=4, warmup=4, population=32))
    return run


@installed
def test_it_spends_exactly_the_budget_on_programs_of_its_own() -> None:
    run = play(10, 0)
    assert run.stopped is Stopped.TRIALS
    assert run.used == 10
    assert all(not candidate.program.steps for candidate in run.history)
    assert len({candidate.program.ir_key for candidate in run.history}) == 11


@installed
def test_the_seed_decides_what_it_measures() -> None:
    first, again, other = (
        [candidate.program.ir_key for candidate in play(6, seed).history] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("option", ["batch", "warmup", "population"])
def test_counts_below_one_are_refused(option: str) -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        MetaScheduleAgent(**{option: 0})


def test_without_its_cost_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaschedule, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"xgboost.*tirgym\[peers\]"):
        MetaScheduleAgent()


@installed
@pytest.mark.usefixtures("toy_compiler")
def test_other_ir_than_tensorir_is_refused() -> None:
    run = SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(2), 0)
    with pytest.raises(InvalidValueError, match="TensorIR"):
        run.run(MetaScheduleAgent())
