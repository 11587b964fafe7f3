"""The record of a run: what is written, when, and what happens if it cannot be."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from toy import ToyCost, ToyEvaluator, Turn, toy_start, toy_vocabulary, toy_workload

import tirgym  # noqa: F401  (registers the environments)
from tirgym.baselines.evolutionary import EvolutionaryAgent
from tirgym.baselines.optimize import optimize
from tirgym.errors import DamagedFileError
from tirgym.harness.agent import Budget
from tirgym.harness.decisions import CallbackAgent, Guard, Recommendation, design_space
from tirgym.harness.run_record import Choice, RunRecord, Visit
from tirgym.harness.search_run import SearchRun
from tirgym.harness.session import CompileHarness
from tirgym.harness.status import Status
from tirgym.harness.target import Target

TESTS = Path(__file__).resolve().parents[1]
ENVIRONMENT: dict[str, Any] = {"backend": "toy", "cost": ToyCost()}


def lines(record: RunRecord) -> list[Visit]:
    assert record.path is not None
    return [Visit.from_json(line) for line in record.path.read_text().splitlines()]


def decided(point: Any) -> Recommendation:
    """Option 3 of every question."""
    return Recommendation(3, 0.75, 1.5, "three is a good number")


@pytest.mark.usefixtures("toy_compiler")
def test_optimize_records_every_verdict(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "new", "beam", 3)
    result = optimize(
        toy_workload(), "beam", 20, seed=3, target=Target("toy", "dials", 1), recorder=record,
        evaluator=ToyEvaluator(), vocabulary=toy_vocabulary(), cost=ToyCost(),
    )  # fmt: skip
    visits = lines(record)
    searched = [visit for visit in visits if visit.before is None]
    assert [visit.ir_key for visit in searched] == [
        trial.candidate.program.ir_key for trial in result.curve
    ]
    for visit, trial in zip(searched, result.curve, strict=True):
        evaluation = trial.candidate.evaluation
        assert visit.transforms == tuple(map(str, trial.candidate.program.steps))
        assert (visit.agent, visit.seed, visit.run) == ("beam", 3, "beam-seed3")
        assert (visit.status, visit.level) == (evaluation.status.value, "training")
        assert (visit.speedup, visit.code_key) == (evaluation.speedup, evaluation.code_key)
        assert evaluation.measurement is not None
        assert visit.latency_us == evaluation.measurement.latency_us
        assert visit.predicted_us == trial.predicted_us
    checked = [visit for visit in visits if visit.before is not None]
    assert len(checked) == len(result.checked) + 1  # and the winner's last measurement
    assert {visit.level for visit in checked} == {"full"}
    assert checked[-1].speedup == result.speedup


@pytest.mark.usefixtures("toy_compiler")
def test_a_harness_records_its_search(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "harness", 0)
    with CompileHarness(
        "toy", evaluator=ToyEvaluator(), vocabulary=toy_vocabulary(), cost=ToyCost()
    ) as harness:
        harness.load_ir(toy_workload())
        harness.search_loop(EvolutionaryAgent(), trials=4, on_trial=record.on_trial)
        said = [event for event in harness.history if event.action == "evaluate"]
    assert [visit.code_key for visit in lines(record)] == [event.code_key for event in said]


@pytest.mark.usefixtures("toy_compiler")
def test_a_search_that_decides_records_its_answers(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "evolutionary", 0)
    run = SearchRun(
        toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(5),
        on_trial=record.on_trial,
    )  # fmt: skip
    run.run(EvolutionaryAgent())
    start, *decided = lines(record)
    assert start.answers == ()
    for visit in decided:
        assert [key for key, _ in visit.answers] == ["dial0.tile", "dial1.tile", "dial2.tile"]
        made = design_space(toy_start()).finish(dict(visit.answers)).program
        assert made.ir_key == visit.ir_key


def test_a_line_is_on_disk_before_the_run_goes_on(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    for number in range(1, 4):
        record.record(toy_start())
        assert len(lines(record)) == record.lines == number


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "a/b: odd name", clock=lambda: 1.0)
    start = toy_start()
    after = start.apply(Turn(0, 4))
    evaluation = ToyEvaluator().evaluate(after)
    choice = Choice("dial0.tile", "tile", 0, 1, ("0", "4"), (9.0, 8.0), 0.5, 1.25, "dial1.tile")
    record.record(after, evaluation, before=start, choice=choice, predicted_us=7.0, seed=11)
    assert record.path is not None
    assert record.path.name == "a-b-odd-name.jsonl"
    assert lines(record) == [
        Visit(
            run="a-b-odd-name", agent="a/b: odd name", seed=11, workload=start.workload.uri,
            target=start.target, transforms=("Turn(dial=0, by=4)",), ir_key=after.ir_key, before=0,
            choice=choice, predicted_us=7.0, status="passed", level="training",
            latency_us=evaluation.measurement.latency_us,  # type: ignore[union-attr]
            speedup=evaluation.speedup, code_key="code40",
        )
    ]  # fmt: skip
    assert choice.label == "4"


def test_runs_and_processes_share_a_folder(tmp_path: Path) -> None:
    first, second = RunRecord(tmp_path, "beam", 0), RunRecord(tmp_path, "beam", 0)
    first.record(toy_start())
    second.record(toy_start())
    elsewhere = pickle.loads(pickle.dumps(first))
    elsewhere.record(toy_start())
    names = [record.path and record.path.name for record in (first, second, elsewhere)]
    assert names == ["beam-seed0.jsonl", "beam-seed0-2.jsonl", "beam-seed0-3.jsonl"]
    assert [len(lines(record)) for record in (first, second, elsewhere)] == [1, 1, 1]


def test_nothing_visited_leaves_no_file(tmp_path: Path) -> None:
    RunRecord(tmp_path, "beam", 0).close()
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_the_run_goes_on_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    record = RunRecord(tmp_path, "beam", 0, on_problem=told.append)
    room, write = 1500, os.write

    def full(file: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(file, data[:room])
        room -= taken
        return taken

    monkeypatch.setattr(os, "write", full)
    run = SearchRun(
        toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), Budget(20),
        on_trial=record.on_trial,
    )  # fmt: skip
    for by in (1, 2, 4, 1):
        run.evaluate(toy_start().apply(Turn(0, by)).apply(Turn(1, by)))
    assert run.used == 3
    assert len(told) == 1
    assert "No space left on device" in told[0]
    assert told == [record.problem]
    assert record.path is not None
    *whole, torn = record.path.read_text().split("\n")
    assert [Visit.from_json(line).agent for line in whole] == ["beam"] * record.lines
    assert 0 < len(torn) < len(whole[0])


def test_without_a_listener_a_full_disk_warns(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    record = RunRecord(tmp_path / "file" / "folder")
    with pytest.warns(RuntimeWarning, match="ended after 0 lines"):
        record.record(toy_start())


def test_a_killed_run_leaves_whole_lines(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from toy import *\n"
        "from tirgym.harness.run_record import RunRecord\n"
        f"record = RunRecord({str(tmp_path)!r}, 'killed')\n"
        "while True: record.record(toy_start(), predicted_us=1.0)\n"
    )
    path = tmp_path / "killed.jsonl"
    with subprocess.Popen([sys.executable, "-c", code], cwd=TESTS) as run:
        until = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size > 100_000) and time.monotonic() < until:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    *whole, last = path.read_text().split("\n")
    assert len(whole) > 100
    assert {Visit.from_json(line).predicted_us for line in whole} == {1.0}
    assert not last.endswith("}")


@pytest.mark.usefixtures("toy_compiler")
def test_a_decision_episode_records_confidence(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "three")
    env = gym.make(
        "tirgym/Decision-v0", kernel=toy_workload(), evaluator=ToyEvaluator(), recorder=record,
        candidate_costs=True, **ENVIRONMENT,
    )  # fmt: skip
    env.reset(seed=5)
    plain = env.unwrapped
    plain.decide(Guard(CallbackAgent(decided)))  # type: ignore[attr-defined]
    env.step(2)
    plain.decide(Guard(CallbackAgent(lambda point: 99)))  # type: ignore[attr-defined]
    first, second, last = lines(record)
    assert [visit.choice and visit.choice.point for visit in (first, second, last)] == [
        "dial0.tile", "dial1.tile", "dial2.tile",
    ]  # fmt: skip
    assert first.choice is not None
    assert (first.choice.confidence, first.choice.predicted_gain) == (0.75, 1.5)
    assert (first.choice.label, first.choice.next_point) == ("3", "dial1.tile")
    assert len(first.choice.costs_us) == len(first.choice.options) == 9
    assert second.choice is not None
    assert second.choice.confidence is None  # whoever called step did not say
    assert last.choice is not None
    assert (last.choice.confidence, last.choice.next_point) == (0.0, "")  # the guard overruled
    assert (first.before, first.status) == (0, "")
    assert (last.status, last.level, last.seed) == ("passed", "full", 5)


@pytest.mark.usefixtures("toy_compiler")
def test_a_schedule_episode_records_steps_refusals_aside(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "steps", 1)
    env = gym.make(
        "tirgym/Schedule-v0", kernel=toy_workload(), vocabulary=toy_vocabulary(),
        evaluator=ToyEvaluator(), recorder=record, **ENVIRONMENT,
    )  # fmt: skip
    env.reset()
    for action in (2, 2, 2, 0):  # by 4, by 4, refused, refused
        env.step(action)
    env.step(np.int64(env.action_space.n - 1))  # type: ignore[attr-defined]
    first, second, stop = lines(record)
    assert (first.before, first.transforms) == (0, ("Turn(dial=0, by=4)",))
    assert (second.before, len(second.transforms)) == (1, 2)
    assert (stop.before, len(stop.transforms)) == (2, 2)  # a verdict, no visit
    assert [visit.level for visit in (first, second, stop)] == ["training", "training", "full"]


@pytest.mark.usefixtures("toy_compiler")
def test_a_program_that_does_not_compile_was_visited(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    evaluator = ToyEvaluator(lambda program, level: Status.COMPILE_ERROR)
    env = gym.make(
        "tirgym/Schedule-v0", kernel=toy_workload(), vocabulary=toy_vocabulary(),
        evaluator=evaluator, recorder=record, **ENVIRONMENT,
    )  # fmt: skip
    env.reset()
    env.step(2)
    (visit,) = lines(record)
    assert (visit.status, visit.transforms) == ("compile_error", ("Turn(dial=0, by=4)",))


@pytest.mark.usefixtures("toy_compiler")
def test_a_walk_is_recorded_by_callback(tmp_path: Path) -> None:
    record = RunRecord(tmp_path, "guarded")
    done = design_space(toy_start()).follow(Guard(CallbackAgent(decided)), record.on_answer)
    visits = lines(record)
    assert [visit.choice and visit.choice.option for visit in visits] == [3, 3, 3]
    assert visits[-1].ir_key == done.program.ir_key


def test_odd_confidences_of_foreign_agents_are_no_reason_to_stop(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    answer = Recommendation(np.int64(1), "sure", float("nan"))  # type: ignore[arg-type]
    walk = design_space_of_the_toy()
    record.on_answer(walk, answer, walk.answer(1))
    (visit,) = lines(record)
    assert visit.choice is not None
    assert (visit.choice.confidence, visit.choice.predicted_gain) == (None, None)


def design_space_of_the_toy() -> Any:
    from toy import ToySpace

    from tirgym.harness.decisions import Walk

    return Walk.begin(toy_start(), ToySpace().tasks(toy_start()))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "other"}, "tirgym-visit-1"),
        ({"status": "fine"}, "fine"),
        ({"speedup": 2.0}, "go together"),
        ({"status": "passed"}, "go together"),
        ({"status": "passed", "speedup": -2.0}, "speedup -2.0"),
        ({"status": "passed", "speedup": float("inf")}, "should be a number"),
        ({"status": "passed", "speedup": 10**400}, "should be a number"),
        ({"latency_us": -(10**400)}, "should be a number"),
        ({"level": "thorough"}, "thorough"),
        ({"transforms": [1]}, "should be a string"),
        ({"seed": "0"}, "whole number"),
        ({"before": 2}, "before 2 of 0 transforms"),
        ({"target": {"backend": "llvm"}}, "arch"),
        ({"extra": 1}, "extra"),
        ({"choice": {"point": "p"}}, "options"),
        ({"answers": [["key", "value"]]}, "whole number"),
        ({"answers": ["key"]}, "unpack"),
    ],
)
def test_lines_that_cannot_be_are_refused(change: dict[str, Any], problem: str) -> None:
    start = toy_start()
    good = Visit("r", "a", 0, start.workload.uri, start.target, (), start.ir_key)
    text = json.dumps({**json.loads(good.to_json()), **change})
    with pytest.raises(DamagedFileError, match=problem):
        Visit.from_json(text, "r.jsonl, line 1")


def test_a_choice_that_cannot_be_is_refused() -> None:
    start = toy_start()
    choice = Choice("p", "tile", 0, 1, ("a", "b"))
    good = Visit("r", "a", 0, start.workload.uri, start.target, (), start.ir_key, 0, choice)
    assert Visit.from_json(good.to_json()) == good
    costs = [(1.0,), (1.0, 0.0), (-1.0, 1.0), (1.0, 10**400)]
    for bad in (replace(choice, option=2), *(replace(choice, costs_us=each) for each in costs)):
        with pytest.raises(DamagedFileError):
            Visit.from_json(replace(good, choice=bad).to_json())
