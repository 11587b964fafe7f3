"""What holds for every agent of the table, on a toy compiler that takes microseconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toy import ToyCost, ToyEvaluator, toy_start, toy_vocabulary

from tirgym.baselines.registry import AGENTS, make_agent
from tirgym.harness.agent import Budget
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.status import Status

TESTS = Path(__file__).parents[1]
EVERY_AGENT = pytest.mark.parametrize("name", sorted(AGENTS))


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
    run.run(make_agent(name))
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
    run = play(name, trials=5000)
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


@EVERY_AGENT
def test_two_processes_with_other_hash_seeds_write_the_same_trace(
    name: str, tmp_path: Path
) -> None:
    texts = []
    for hash_seed in ("1", "2"):
        out = tmp_path / f"{hash_seed}.json"
        subprocess.run(
            [sys.executable, str(TESTS / "toy_optimize.py"), name, str(out)],
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS), "PATH": ""},
        )
        texts.append(out.read_bytes())
    assert texts[0] == texts[1]
    assert b'"status": "passed"' in texts[0]


def test_beam_uses_few_trials_where_the_model_is_right() -> None:
    few = play("beam", trials=24)
    assert (few.ranked()[0].evaluation.speedup or 0.0) > 10.0
