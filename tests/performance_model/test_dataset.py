"""What is learned from a store, and why the rest is not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from learned import HELD_OUT, KERNELS, TARGET, fill, measured, start, truth

from tirgym.errors import InvalidValueError
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import GateReport, Level
from tirgym.harness.hardware import fingerprint
from tirgym.harness.status import Status
from tirgym.harness.store import Context, Record, Store
from tirgym.harness.target import Target
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import load_workload
from tirgym.performance_model.dataset import Dataset, read_store

ADD = KERNELS["elementwise"]
CONTEXT = context_of(load_workload(ADD), TARGET)
GATE = GateReport(("normal",), 0.1, True)


def put(
    store: Store,
    key: str,
    speedup: float = 2.0,
    level: Level = Level.TRAINING,
    context: Context = CONTEXT,
) -> None:
    store.put(Record(context, key, level, Status.PASSED, "", GATE, measured(speedup)))


def steps(store: Store, ir_key: str, code_key: str, *texts: str) -> None:
    store.put_code_key(CONTEXT, ir_key, code_key)
    store.put_transforms(CONTEXT, ir_key, texts)


def key_after(*texts: str) -> str:
    program = start(ADD)
    for text in texts:
        program = program.apply(parse_transform(text))
    return program.ir_key


SPLIT = ("Split(loop=1, factor=8)",)
UNROLLED = (*SPLIT, "Unroll(loop=2)")


def test_programs_are_made_again_with_their_numbers(dataset: Dataset) -> None:
    assert dataset.skipped == {}
    assert {sample.workload.uri for sample in dataset.samples} == {*KERNELS.values(), HELD_OUT}
    for sample in dataset.samples[::9]:
        assert sample.log_speedup == pytest.approx(truth(sample.program))
        assert not sample.cut_off
    splits = {sample.workload.uri: sample.split for sample in dataset.samples}
    assert splits[HELD_OUT] is Split.VAL
    assert splits[ADD] is Split.TRAIN


def test_the_order_does_not_depend_on_the_order_of_writing() -> None:
    stores = Store(), Store()
    fill(stores[0], list(KERNELS.values())[:2], 6)
    fill(stores[1], list(KERNELS.values())[1::-1], 6)
    one, two = (read_store(store, TARGET) for store in stores)
    assert [s.program.ir_key for s in one.samples] == [s.program.ir_key for s in two.samples]


def test_full_verdicts_count_before_training_ones_and_equal_code_counts_once() -> None:
    store = Store()
    steps(store, key_after(*SPLIT), "code", *SPLIT)
    steps(store, key_after(*UNROLLED), "code", *UNROLLED)
    put(store, "code", 2.0)
    put(store, "code", 3.0, Level.FULL)
    (sample,) = read_store(store, TARGET).samples
    assert sample.log_speedup == pytest.approx(math.log(3.0))
    assert tuple(map(str, sample.program.steps)) == SPLIT


def test_a_program_that_was_cut_off_has_its_limit() -> None:
    store = Store()
    steps(store, key_after(*SPLIT), "code", *SPLIT)
    record = Record(CONTEXT, "code", Level.TRAINING, Status.TOO_SLOW, "", None, None, 20.0)
    store.put(record)
    (sample,) = read_store(store, TARGET).samples
    assert sample.cut_off
    assert sample.log_speedup == pytest.approx(-math.log(20.0))


def test_what_cannot_be_learned_from_is_counted_with_its_reason() -> None:
    store = Store()
    put(store, "nobody knows how")
    put(store, "code", context=replace(CONTEXT, workload=f"{ADD}#bitwise"))
    put(store, "code", context=replace(CONTEXT, workload="tirgym://core-v0/gone?m=1"))
    put(store, "code", context=replace(CONTEXT, workload="tirgym://local/mine.p%79:K?m=1"))
    put(store, "code", context=replace(CONTEXT, versions="tvm=0"))
    put(store, "code", context=replace(CONTEXT, protocol=1))
    store.put(Record(CONTEXT, "ir:1", Level.TRAINING, Status.COMPILE_ERROR, "no"))
    steps(store, "another key", "else", *SPLIT)
    put(store, "else")
    steps(store, "illegal", "never", "Split(loop=9, factor=8)")
    put(store, "never")
    found = read_store(store, TARGET)
    assert found.samples == ()
    assert found.skipped == {
        "of a kernel that is not found here": 1,
        "of a kernel in a Python file, which is not run": 1,
        "of a kernel that was edited since, or of another mode": 1,
        "of other compiler or protocol versions": 2,
        "whose steps make another program here": 2,
        "without a number": 1,
        "without the steps of a program": 1,
    }


def test_a_target_that_was_never_measured_is_refused() -> None:
    store = Store()
    with pytest.raises(InvalidValueError, match="it is empty"):
        read_store(store, TARGET)
    put(store, "code")
    with pytest.raises(InvalidValueError, match=r"llvm/skylake-avx512/1 thread"):
        read_store(store, Target("llvm", "skylake-avx512", 2))


def test_of_several_machines_this_one_is_taken_or_one_must_be_named() -> None:
    store = Store()
    steps(store, key_after(*SPLIT), "code", *SPLIT)
    put(store, "code", 2.0)
    put(store, "code", 4.0, context=replace(CONTEXT, machine="elsewhere"))
    assert read_store(store, TARGET).machine == fingerprint()
    (sample,) = read_store(store, TARGET, "elsewhere").samples
    assert sample.log_speedup == pytest.approx(math.log(4.0))
    with pytest.raises(InvalidValueError, match="one of"):
        read_store(store, TARGET, "nowhere")
