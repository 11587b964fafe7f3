"""`LocalEvaluator`: levels, reuse, comparison, interruption, several evaluators."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import (
    PLANS,
    WORKLOAD,
    annotated,
    extern,
    host,
    quick,
    right,
    start,
    tiled,
    written_as,
)
from tvm import tirx

from tirgym.errors import EvaluationError, InvalidValueError, TargetMismatchError
from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.store import Store
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Regime
from tirgym.kernels_suite.registry import load_workload

MATMUL = load_workload("tirgym://core-v0/matmul?m=33&n=48&k=40&dtype=float32")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


def test_identical_code_has_one_number(evaluator: LocalEvaluator) -> None:
    first = evaluator.evaluate(tiled())
    assert first.measurement is not None
    assert not first.measurement.reused
    again = evaluator.evaluate(tiled())
    assert again.measurement == replace(first.measurement, reused=True)
    assert again.phases.build_s == 0.0, "known IR is not built again"
    twin = evaluator.evaluate(annotated())
    assert twin.ir_key != first.ir_key
    assert twin.code_key == first.code_key
    assert twin.measurement == again.measurement
    assert twin.phases.gate_s == twin.phases.timing_s == 0.0
    assert np.log(first.measurement.speedup / twin.measurement.speedup) == 0.0


def test_levels_are_measured_apart_and_a_rejection_holds_for_both(
    evaluator: LocalEvaluator,
) -> None:
    training = evaluator.evaluate(tiled())
    full = evaluator.evaluate(tiled(), Level.FULL)
    assert full.measurement is not None
    assert not full.measurement.reused
    assert full.gate is not None
    assert set(full.gate.regimes) == {str(r) for r in Regime}
    assert training.gate is not None
    assert {"ramp", "normal"} < set(training.gate.regimes)
    assert len(training.gate.regimes) == 4
    wrong = written_as(lambda a, i, j: a[i, j] + tirx.const(1.0, "float32"))
    assert evaluator.evaluate(wrong).status is Status.WRONG_RESULT
    found = evaluator.evaluate(wrong, Level.FULL)
    assert found.status is Status.WRONG_RESULT
    assert found.phases.build_s == 0.0


def test_training_takes_a_full_verdict(evaluator: LocalEvaluator) -> None:
    full = evaluator.evaluate(tiled(4), Level.FULL)
    assert full.measurement is not None
    training = evaluator.evaluate(tiled(4))
    assert training.measurement == replace(full.measurement, reused=True)


def test_fresh_measures_again_and_stores_nothing(evaluator: LocalEvaluator) -> None:
    stored = evaluator.evaluate(tiled(), Level.FULL).measurement
    fresh = evaluator.evaluate(tiled(), Level.FULL, fresh=True).measurement
    assert stored is not None
    assert fresh is not None
    assert not fresh.reused
    assert fresh.candidate != stored.candidate
    after = evaluator.evaluate(tiled(), Level.FULL).measurement
    assert after == replace(stored, reused=True)


def test_regimes_rotate(evaluator: LocalEvaluator) -> None:
    seen: set[str] = set()
    for factor in (2, 3, 6, 12, 16, 24):
        gate = evaluator.evaluate(tiled(factor)).gate
        assert gate is not None
        seen |= set(gate.regimes)
    assert seen == {str(r) for r in Regime}


def test_the_store_keeps_how_each_program_is_made(tmp_path: Path) -> None:
    steps = ("Split(loop=1, factor=8)", "Unroll(loop=2)")
    program = TensorIRProgram.start(MATMUL, host())
    with quick(tmp_path / "store.sqlite") as one:
        one.evaluate(program)
        for step in steps:
            program = program.apply(parse_transform(step))
        one.evaluate(program, fresh=True)
        assert len(list(one.store.programs())) == 1, "a fresh evaluation stores nothing"
        evaluation = one.evaluate(program)
    store = Store(tmp_path / "store.sqlite", read_only=True)
    made = {p.ir_key: p for p in store.programs()}
    assert made[program.ir_key].transforms == steps
    assert made[program.ir_key].key == evaluation.code_key
    with LocalEvaluator(host(), store, plans=PLANS) as reader:
        assert reader.evaluate(program).code_key == evaluation.code_key


def test_numbers_come_from_the_store_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with quick(path) as one:
        first = one.evaluate(tiled())
    with quick(path) as two:
        second = two.evaluate(tiled())
        assert not two._workshop.lanes, "no worker was needed"
    assert first.measurement is not None
    assert second.measurement == replace(first.measurement, reused=True)
    records = list(Store(path, read_only=True).records())
    assert [r.status for r in records] == [Status.PASSED]


def test_a_store_may_be_shared_and_outlives_the_evaluator() -> None:
    store = Store()
    with quick(store) as one, quick(store) as two:
        first = one.evaluate(tiled())
        second = two.evaluate(tiled())
    assert first.measurement is not None
    assert second.measurement == replace(first.measurement, reused=True)
    assert len(store) == 1


def test_comparison_is_paired_and_gated(evaluator: LocalEvaluator) -> None:
    def sleepy(a: Any, i: Any, j: Any) -> Any:
        once = tirx.all(i == 0, j == 0)
        pause = tirx.if_then_else(once, extern("int32", "usleep", 300), 0)
        return right(a, i, j) + tirx.Cast("float32", pause)

    with quick(static_checks=False) as unchecked:
        found = unchecked.compare(written_as(sleepy), start())
        assert found.verdict == "faster", (found.first, found.second)
        assert found.ratio is not None
        assert found.ratio > 2.0
        assert unchecked.compare(start(), written_as(sleepy)).verdict == "slower"
    same = evaluator.compare(tiled(), annotated())
    assert (same.ratio, same.interval, same.same_code) == (1.0, (1.0, 1.0), True)
    assert same.verdict == "no difference shown"
    wrong = written_as(lambda a, i, j: a[i, j] + tirx.const(1.0, "float32"))
    refused = evaluator.compare(tiled(), wrong)
    assert (refused.ratio, refused.verdict) == (None, "invalid")
    matmul = TensorIRProgram.start(MATMUL, host())
    with pytest.raises(TargetMismatchError, match="cannot compare"):
        evaluator.compare(tiled(), matmul)


def test_baseline_is_the_unscheduled_program_in_full(evaluator: LocalEvaluator) -> None:
    found = evaluator.baseline(WORKLOAD)
    assert found.speedup == 1.0
    assert found.level is Level.FULL
    assert found.ir_key == start().ir_key
    with LocalEvaluator(store=":memory:") as any_target, pytest.raises(InvalidValueError):
        any_target.baseline(WORKLOAD)


def test_ctrl_c_kills_the_worker_and_the_next_evaluation_works() -> None:
    endless = written_as(lambda a, i, j: right(a, i, j) + extern("float32", "pause"))
    with quick(static_checks=False) as evaluator:
        before = evaluator.evaluate(start())
        worker = evaluator._workshop.lanes[0].pool._current
        assert worker is not None
        timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            evaluator.evaluate(endless)
        timer.join()
        assert not worker.usable()
        assert before.measurement is not None
        again = evaluator.evaluate(start()).measurement
        assert again == replace(before.measurement, reused=True)
        assert evaluator.evaluate(tiled()).passed


def test_evaluators_of_one_process_do_not_share_workers() -> None:
    with quick() as one, quick() as two:
        assert one.evaluate(tiled()).passed
        assert two.evaluate(tiled()).passed
        assert one._workshop.lanes[0].pool._current is not two._workshop.lanes[0].pool._current


def test_threads_may_share_an_evaluator(evaluator: LocalEvaluator) -> None:
    found: list[Status] = []
    threads = [
        threading.Thread(target=lambda: found.append(evaluator.check(tiled(8)).status))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Status.PASSED] * 3


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_a_parallel_program_on_two_threads() -> None:
    program = TensorIRProgram.start(WORKLOAD, host(2))
    schedule = program.schedule
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedule.parallel(schedule.get_loops(block)[0])
    with LocalEvaluator(store=":memory:", plans=PLANS) as evaluator:
        found = evaluator.evaluate(TensorIRProgram(WORKLOAD, host(2), (), schedule))
        assert found.passed, found.message
        assert evaluator.evaluate(tiled()).passed, "one thread has a worker of its own"


def test_programs_for_another_target_are_refused(evaluator: LocalEvaluator) -> None:
    other = replace(host(), arch="haswell" if host().arch != "haswell" else "skylake")
    program = TensorIRProgram.start(WORKLOAD, other)
    with pytest.raises(InvalidValueError, match="the evaluator's"):
        evaluator.evaluate(program)


def test_a_closed_evaluator_says_so() -> None:
    evaluator = quick()
    evaluator.close()
    evaluator.close()
    with pytest.raises(EvaluationError, match="closed"):
        evaluator.evaluate(start())


def _check_in_child(answers: Any) -> None:
    with quick() as made:
        answers.put(str(made.check(tiled(), Level.TRAINING).status))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(evaluator: LocalEvaluator) -> None:
    """As `AsyncVectorEnv` makes them: forked after the parent has used an evaluator."""
    assert evaluator.check(tiled(), Level.TRAINING).status is Status.PASSED
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_check_in_child, args=(answers,))
    child.start()
    assert answers.get(timeout=120) == "passed"
    child.join(30)
    assert child.exitcode == 0
    assert evaluator.check(tiled(), Level.TRAINING).status is Status.PASSED
