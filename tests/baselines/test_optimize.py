"""`optimize`: choice of the winner, files, interruption, results as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy import ToyCost, ToyEvaluator, ToyProgram, toy_vocabulary, toy_workload

from tirgym.baselines.optimize import OptimizeResult, Phase, Progress, optimize
from tirgym.baselines.registry import make_branches
from tirgym.errors import InvalidValueError, UnknownNameError
from tirgym.harness.agent import Search
from tirgym.harness.evaluation import Level
from tirgym.harness.search_run import Stopped
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace

pytestmark = pytest.mark.usefixtures("toy_compiler")


def run(
    agent: Any = "beam", evaluator: ToyEvaluator | None = None, **keywords: Any
) -> OptimizeResult:
    return optimize(
        toy_workload(),
        agent,
        keywords.pop("trials", 30),
        target=Target("toy", "dials", 1),
        evaluator=evaluator or ToyEvaluator(),
        vocabulary=toy_vocabulary(),
        cost=ToyCost(),
        **keywords,
    )


def test_the_result_is_verified_and_replayable_as_json() -> None:
    result = run()
    said = json.loads(json.dumps(result.to_dict()))
    wanted = "workload backend target num_threads agent trials status baseline_us best_us speedup"
    assert set(wanted.split()) | {"speedup_ci", "code_key", "trace"} <= set(said)
    assert said["status"] == "passed"
    assert said["speedup"] == pytest.approx(11.0)
    assert said["baseline_us"] / said["best_us"] == pytest.approx(said["speedup"])
    program = ToyProgram(toy_workload(), result.target)
    for step in result.program.steps:
        program = program.apply(step)
    assert program.ir_key == result.trace.ir_key
    assert said["trace"] == [str(step) for step in program.steps]


def test_branches_find_the_best_within_one_budget() -> None:
    result = run(make_branches("beam", 3))
    assert result.trials <= 30
    assert (result.agent, result.trace.agent) == ("beam x3", "beam x3")
    assert result.speedup == pytest.approx(11.0)


def test_patience_ends_the_search_with_the_best_state() -> None:
    result = run("beam", trials=1000, patience=6)
    assert result.stopped is Stopped.CONVERGED
    assert result.trials < 60
    assert result.speedup == pytest.approx(11.0)


def test_the_curve_has_every_answer_and_never_falls() -> None:
    result = run("random")
    assert result.curve[-1].number == result.trials == 30
    best = [trial.best_speedup for trial in result.curve]
    assert best == sorted(best)
    assert result.seconds["total"] >= result.seconds["search"] >= 0


def test_a_cheating_best_never_wins() -> None:
    """What only passes the training gate falls in the full one."""
    result = run(
        evaluator=ToyEvaluator(
            lambda program, level: (
                Status.WRONG_RESULT
                if level is Level.FULL and program.dials[0] == 5
                else Status.PASSED
            )
        )
    )
    assert result.status == "passed"
    assert result.program.dials[0] != 5  # type: ignore[attr-defined]
    assert any(c.evaluation.status is Status.WRONG_RESULT for c in result.checked)


def test_when_everything_fails_there_is_no_number_and_it_says_why() -> None:
    result = run(evaluator=ToyEvaluator(lambda program, level: Status.CRASH))
    assert result.status == "crash"
    assert (result.speedup, result.best_us, result.baseline_us) == (None, None, None)
    assert result.trace.transforms == ()
    assert result.message


def test_ctrl_c_in_the_search_returns_the_best_so_far_verified(tmp_path: Path) -> None:
    def interrupt(calls: int) -> None:
        if calls == 12:
            raise KeyboardInterrupt

    result = run(evaluator=ToyEvaluator(on_call=interrupt), out=tmp_path / "trace.json")
    assert result.stopped is Stopped.INTERRUPTED
    assert result.status == "passed"
    assert len(result.curve) == 11  # the unscheduled program and ten more
    assert (result.speedup or 0) > 1
    assert Trace.load(tmp_path / "trace.json") == result.trace


class Breaks:
    """Measures two programs, then raises."""

    name = "breaks"

    def run(self, search: Search) -> None:
        program = search.start.apply(search.vocabulary[2])
        search.evaluate(program)
        search.evaluate(program.apply(search.vocabulary[0]))
        raise ZeroDivisionError


def test_a_crash_leaves_the_best_so_far_as_a_readable_trace_that_claims_nothing(
    tmp_path: Path,
) -> None:
    out = tmp_path / "trace.json"
    with pytest.raises(ZeroDivisionError):
        run(Breaks(), out=out)
    trace = Trace.load(out)
    assert trace.transforms == ("Turn(dial=0, by=4)", "Turn(dial=0, by=1)")
    assert trace.result is not None
    assert trace.result.status == "unverified"
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_progress_names_phases_and_counts() -> None:
    told: list[Progress] = []
    result = run("greedy", progress=told.append)
    phases = [at.phase for at in told]
    assert phases == sorted(phases, key=list(Phase).index)
    assert set(phases) == set(Phase)
    assert told[-1].used == result.trials <= told[-1].trials == 30
    assert told[-1].best_speedup == result.speedup


def test_bad_names_and_budgets_leave_no_file(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    with pytest.raises(UnknownNameError, match="beam"):
        run("baem", out=out)
    with pytest.raises(InvalidValueError, match="trials"):
        run(trials=0, out=out)
    assert list(tmp_path.iterdir()) == []


def test_an_evaluator_of_the_caller_stays_open() -> None:
    evaluator = ToyEvaluator()
    run(evaluator=evaluator)
    assert not evaluator.closed
