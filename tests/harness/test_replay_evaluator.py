"""Replay answers from the store alone, in the store's own terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import passed
from small import SMALL, make

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Level
from tirgym.harness.replay_evaluator import ReplayEvaluator, stored_target
from tirgym.harness.status import Status
from tirgym.harness.store import Context, Record, Store
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram

SPLIT = make(SMALL["matmul"], "Split(loop=0, factor=2)")


def remember(
    store: Store, context: Context, program: TensorIRProgram, speedup: float, level: Level
) -> None:
    made = passed(speedup, program.ir_key, "code", level)
    store.put_code_key(context, program.ir_key, "code")
    store.put(
        Record(context, "code", level, made.status, gate=made.gate, measurement=made.measurement)
    )


def test_it_answers_what_is_stored_and_incomplete_otherwise(tmp_path: Path) -> None:
    context = context_of(SPLIT.workload, SPLIT.target)
    with_numbers = Store(tmp_path / "store.sqlite")
    remember(with_numbers, context, SPLIT, 3.0, Level.TRAINING)
    with_numbers.close()
    evaluator = ReplayEvaluator(tmp_path / "store.sqlite")
    answer = evaluator.evaluate(SPLIT)
    assert (answer.status, answer.speedup, answer.code_key) == (Status.PASSED, 3.0, "code")
    assert answer.measurement is not None
    assert answer.measurement.reused
    in_full = evaluator.evaluate(SPLIT, Level.FULL)
    assert (in_full.speedup, in_full.level) == (3.0, Level.TRAINING)
    assert in_full.replayed_from == context.machine
    missing = evaluator.evaluate(make(SMALL["matmul"]))
    assert (missing.status, missing.speedup) == (Status.INCOMPLETE, None)
    assert "no verdict on this program" in missing.message
    fresh = evaluator.evaluate(SPLIT, fresh=True)
    assert (fresh.status, fresh.speedup) == (Status.INCOMPLETE, None)
    other = evaluator.evaluate(make(SMALL["softmax"]))
    assert other.status is Status.INCOMPLETE
    assert "nothing for softmax" in other.message
    evaluator.close()


def test_each_level_is_answered_by_its_own_verdict_first() -> None:
    store = Store(":memory:")
    context = context_of(SPLIT.workload, SPLIT.target)
    remember(store, context, SPLIT, 2.0, Level.FULL)
    assert ReplayEvaluator(store).evaluate(SPLIT).speedup == 2.0
    remember(store, context, SPLIT, 3.0, Level.TRAINING)
    assert ReplayEvaluator(store).evaluate(SPLIT).speedup == 3.0
    assert ReplayEvaluator(store).evaluate(SPLIT, Level.FULL).speedup == 2.0


def test_numbers_of_another_machine_and_compiler_are_found_and_chosen_by_name() -> None:
    store = Store(":memory:")
    here = context_of(SPLIT.workload, SPLIT.target)
    for machine, speedup in (("elsewhere", 5.0), ("faraway", 7.0)):
        remember(
            store, replace(here, machine=machine, versions="old"), SPLIT, speedup, Level.TRAINING
        )
    assert ReplayEvaluator(store, "faraway").evaluate(SPLIT).speedup == 7.0
    assert ReplayEvaluator(store).evaluate(SPLIT).speedup == 5.0
    remember(store, here, SPLIT, 2.0, Level.TRAINING)
    assert ReplayEvaluator(store).evaluate(SPLIT).speedup == 2.0
    with pytest.raises(InvalidValueError, match="elsewhere"):
        ReplayEvaluator(store, "nowhere")


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"none\.sqlite"):
        ReplayEvaluator(tmp_path / "none.sqlite")


def test_the_target_is_the_stores() -> None:
    store = Store(":memory:")
    with pytest.raises(InvalidValueError, match="the store is empty"):
        stored_target(store, Target("llvm", "haswell", 1))
    remember(store, context_of(SPLIT.workload, SPLIT.target), SPLIT, 2.0, Level.FULL)
    assert stored_target(store, Target("llvm", "haswell", 1)) == SPLIT.target
    assert stored_target(store, SPLIT.target) == SPLIT.target
    with pytest.raises(InvalidValueError, match="skylake-avx512"):
        stored_target(store, Target("llvm", "haswell", 2))
