"""What holds for every agent that plays transforms, on a toy compiler that takes microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hash_seeds import Alike
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines.registry import make_agent
from tirgym.harness.agent import Budget
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.status import Status

pytestmark = pytest.mark.usefixtures("toy_compiler")

TESTS = Path(__file__).parents[1]
ON_ANY_VOCABULARY = ("beam", "greedy", "random")
SMALL = {"beam": {"width": 6, "samples": 6, "depth": 5, "fruitless": 2, "pool": 50, "evidence": 40}}
EVERY_AGENT = pytest.mark.parametrize("name", ON_ANY_VOCABULARY)


def play(
    name: str, trials: int = 30, seed: int = 0, evaluator: ToyEvaluator | None = None
) -> SearchRun:
    run = SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        evaluator or ToyEvaluator(),
        Budget(trials),
        seed,
    )
    run.run(make_agent(name, **SMALL.get(name, {})))
    return run


@EVERY_AGENT
def test_it_spends_its_trials_and_no_more(name: str) -> None:
    run = play(name)
    assert run.used == 30
    assert run.stopped is Stopped.TRIALS


@EVERY_AGENT
def test_it_finds_something_faster(name: str) -> None:
    assert (play(name).ranked()[0].evaluation.speedup or 0.0) > 5.0


@EVERY_AGENT
@pytest.mark.parametrize("trials", [1, 2])
def test_the_smallest_budgets_work(name: str, trials: int) -> None:
    assert play(name, trials=trials).used == trials


@EVERY_AGENT
def test_it_ends_by_itself_when_nothing_is_left(name: str) -> None:
    run = play(name, trials=100)
    assert run.used < 9 * 9
    assert run.stopped in (Stopped.FINISHED, Stopped.DUPLICATES)


@EVERY_AGENT
@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.COMPILE_ERROR, Status.TOO_SLOW])
def test_it_survives_when_nothing_ever_passes(name: str, status: Status) -> None:
    run = play(name, evaluator=ToyEvaluator(lambda program, level: status))
    assert run.ranked() == []
    assert run.used <= 30


@EVERY_AGENT
def test_a_seed_fixes_the_run_and_another_changes_it(name: str) -> None:
    def path(seed: int) -> list[str]:
        return [candidate.program.ir_key for candidate in play(name, seed=seed).history]

    assert path(3) == path(3)
    assert path(3) != path(4) or name == "greedy"


def test_two_processes_with_other_hash_seeds_write_the_same_traces(alike: Alike) -> None:
    code = "import sys, toy_optimize; toy_optimize.main(sys.argv[1:])"
    traces = alike(code, *ON_ANY_VOCABULARY)
    assert traces.count('"status": "passed"') == len(ON_ANY_VOCABULARY)


def test_beam_learns_what_the_model_is_blind_to() -> None:
    """The toy's cost knows the first dial alone; chance would need half of the 81 codes."""
    found = play("beam", trials=30).ranked()[0]
    assert (found.evaluation.speedup or 0.0) > 8.0
