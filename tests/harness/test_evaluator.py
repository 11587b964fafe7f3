"""`LocalEvaluator`: levels, reuse, comparison, interruption, several evaluators, foreign kernels."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import KERNEL, WORKLOAD, edited, extern, host, right, start, written_as
from tvm import te, tirx

from tirgym.errors import EvaluationError, InvalidValueError, TargetMismatchError, UsageError
from tirgym.harness.backend import Build, backend
from tirgym.harness.evaluation import Level, Measurement
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.store import Store
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import Call, TimingPlan
from tirgym.harness.transforms import parse_transform
from tirgym.harness.workbench import Anchor, Rules, Workbench
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.registry import load_workload

QUICK = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)
PLANS = {Level.TRAINING: QUICK, Level.FULL: QUICK}
MATMUL = load_workload("tirgym://core-v0/matmul?m=33&n=48&k=40&dtype=float32")


def quick(store: Any = ":memory:", **options: Any) -> LocalEvaluator:
    return LocalEvaluator(host(), store, **{"plans": PLANS, **options})


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with quick() as made:
        yield made


def tiled(factor: int = 8) -> TensorIRProgram:
    def change(schedule: Any, block: Any) -> None:
        i, j = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, factor])
        schedule.reorder(outer, j, inner)

    return edited(change)


def annotated() -> TensorIRProgram:
    """Another IR than `tiled`, the same machine code."""
    program = tiled()
    schedule = program.schedule
    schedule.annotate(
        schedule.get_child_blocks(schedule.get_sblock("root"))[0], "a_note", "to nobody"
    )
    return TensorIRProgram(program.workload, program.target, (), schedule)


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
        assert not two._workshop._pools, "no worker was needed"
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
        worker = evaluator._workshop._pools[1]._current
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
        assert one._workshop._pools[1]._current is not two._workshop._pools[1]._current


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


def test_several_workloads_and_kernels_of_the_suite(evaluator: LocalEvaluator) -> None:
    uris = ("add?m=17&n=31", "softmax?m=9&n=33", "argmax?m=7&n=50")
    for uri in uris:
        workload = load_workload(f"tirgym://core-v0/{uri}")
        found = evaluator.check(TensorIRProgram.start(workload, host()))
        assert found.status is Status.PASSED, found.message


def test_more_workloads_than_a_worker_keeps(evaluator: LocalEvaluator) -> None:
    workloads = [
        load_workload(f"tirgym://core-v0/add?m={m}&n=8&dtype=float32") for m in range(3, 12)
    ]
    for workload in (*workloads, workloads[0]):
        program = TensorIRProgram.start(workload, host())
        assert evaluator.check(program, Level.TRAINING).status is Status.PASSED


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


def test_a_kernel_without_reference_is_refused(evaluator: LocalEvaluator) -> None:
    workload = Workload.of(replace(KERNEL, reference=None))
    with pytest.raises(UsageError, match="reference"):
        evaluator.evaluate(TensorIRProgram.start(workload, host()))


def test_a_reference_that_disagrees_with_the_build_is_named(evaluator: LocalEvaluator) -> None:
    workload = Workload.of(replace(KERNEL, name="at_odds", reference=lambda a: a * 2.0))
    with pytest.raises(EvaluationError, match="fails its own gate: normal: B"):
        evaluator.evaluate(TensorIRProgram.start(workload, host()))
    assert evaluator.check(start(), Level.TRAINING).status is Status.PASSED


def test_a_closed_evaluator_says_so() -> None:
    evaluator = quick()
    evaluator.close()
    evaluator.close()
    with pytest.raises(EvaluationError, match="closed"):
        evaluator.evaluate(start())


def test_verdicts_of_a_local_kernel_end_when_its_reference_is_edited(tmp_path: Path) -> None:
    def other(a: Any) -> Any:
        return a + a + 1.0

    edited_kernel = Workload.of(replace(KERNEL, reference=other))
    with quick(tmp_path / "store") as evaluator:
        assert evaluator.evaluate(start()).passed
        found = evaluator.evaluate(TensorIRProgram.start(edited_kernel, host()))
        assert found.measurement is not None
        assert not found.measurement.reused


def test_speedups_of_a_local_kernel_end_when_its_build_is_edited(tmp_path: Path) -> None:
    """They are relative to the unscheduled program, which is another one then."""

    def staged(shape: Any) -> Any:
        a = te.placeholder((shape["m"], shape["n"]), name="A")
        b = te.compute(a.shape, lambda i, j: a[i, j] * tirx.const(2.0, "float32"), name="T")
        c = te.compute(a.shape, lambda i, j: b[i, j] + tirx.const(1, "float32"), name="B")
        return te.create_prim_func([a, c])

    slow = TensorIRProgram.start(Workload.of(replace(KERNEL, build=staged)), host())
    with quick(tmp_path / "store") as evaluator:
        inlined = evaluator.evaluate(slow.apply(parse_transform("ComputeInline(block=0)")))
        found = evaluator.evaluate(start())
        assert inlined.code_key == found.code_key
        assert found.measurement is not None
        assert not found.measurement.reused
        assert found.speedup == 1.0


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


SCRIPT = """
    import numpy as np
    from tvm import te
    from tirgym.harness.backend import backend
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.kernels_suite.kernel import Kernel, Workload

    FACTOR = 3.0

    def build(shape):
        a = te.placeholder((shape["n"],), name="a")
        return te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] * 3.0, name="b")])

    def triple(a):
        return scaled(a)

    def scaled(a):
        return a * FACTOR

    KERNEL = Kernel("triple", "mine", build, triple, ({"n": 4000},))

    if __name__ == "__main__":
        target = backend("llvm").target()
        with LocalEvaluator(target, store=":memory:") as evaluator:
            start = backend("llvm").start(Workload.of(KERNEL), target)
            print(evaluator.check(start).status)
"""


def test_kernels_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["passed"], done.stderr


def test_kernels_of_a_file_loaded_by_path(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    script = tmp_path / "my own kernels.py"
    script.write_text(textwrap.dedent(SCRIPT))
    workload = load_workload(f"{script}:KERNEL")
    assert evaluator.check(TensorIRProgram.start(workload, host())).status is Status.PASSED


TVMSCRIPT = """
    from tvm.script import tirx as T
    from tirgym.kernels_suite.kernel import Kernel

    def build(shape):
        n = shape["n"]

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")):
            for i in range(n):
                with T.sblock("B"):
                    v = T.axis.spatial(n, i)
                    B[v] = A[v] * T.float32(2)

        return main

    KERNEL = Kernel("twice", "mine", build, lambda a: a * 2, ({"n": 4000},))
"""


def test_kernels_in_tvmscript(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    """Their build reads its source code, which workers do not have."""
    script = tmp_path / "scripted.py"
    script.write_text(textwrap.dedent(TVMSCRIPT))
    workload = load_workload(f"{script}:KERNEL")
    assert evaluator.check(TensorIRProgram.start(workload, host())).status is Status.PASSED


class SetTimer:
    """A timer by which every program takes as long as it is told."""

    name = "set"

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds

    def time(self, call: Call, calls: int) -> float:
        for _ in range(calls):
            call.function(*call.arguments)
        return self.seconds.get(id(call.function), 1e-3)


def workbench(timer: Any, tmp_path: Path) -> Workbench:
    rules = Rules(b"secret", 0, PLANS, timer, str(tmp_path / "lock"), 1e9, 1e9)
    text = backend("llvm").module_json(start())
    made = Workbench(WORKLOAD, text, host(), rules)
    made.naive_s = 1e-3
    return made


def play(bench: Workbench, function: Callable[..., Any], key: str = "code") -> Any:
    bench.remember(Build("", key, lambda: function))
    return bench.evaluate(key, Level.TRAINING, 0, 0.0, lambda phase: None)


def test_what_the_timed_loop_left_is_judged(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    good = bench.naive.function
    calls: list[int] = []

    def tires(*arguments: Any) -> None:
        good(*arguments)
        calls.append(1)
        if len(calls) > 12:
            bench.bench.outputs[0].array[1, 1] = 0.5

    found = play(bench, tires)
    assert found.status is Status.WRONG_RESULT
    assert found.message.startswith("after timing: normal: B[1, 1]")
    assert found.measurement is None
    calls.clear()

    def wavers(*arguments: Any) -> None:
        good(*arguments)
        calls.append(1)
        if len(calls) > 12:
            place = bench.bench.outputs[0].array
            place[1, 1] = np.nextafter(place[1, 1], np.float32(9))

    found = play(bench, wavers)
    assert found.status is Status.FLAKY
    assert play(bench, good).status is Status.PASSED


def test_fast_programs_become_anchors_and_slow_naive_is_spared(tmp_path: Path) -> None:
    timer = SetTimer({})
    bench = workbench(timer, tmp_path)
    good = bench.naive.function
    timer.seconds[id(good)] = 1e-2
    bench.naive_s = 1e-2

    def program(seconds: float) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            good(*arguments)

        timer.seconds[id(run)] = seconds
        return run

    first = program(1e-4)
    outcome = play(bench, first)
    assert outcome.measurement.speedup == pytest.approx(100.0)
    assert outcome.measurement.anchor_ratio == 1.0
    assert outcome.anchor is not None
    assert outcome.anchor.ratio == pytest.approx(100.0)
    anchor = replace(outcome.anchor, module_json="first", half_width=0.04)
    bench.anchors.append(anchor)
    bench.loaded["first"] = Call(first, bench.baseline.arguments())
    bench.naive_s = 1e-2
    second = program(0.8e-4)
    outcome = play(bench, second)
    assert outcome.anchor is None, "not much faster than the anchor"
    found: Measurement = outcome.measurement
    assert found.anchor_ratio == pytest.approx(100.0)
    assert found.baseline.lower_quartile_us == pytest.approx(100.0)
    assert found.speedup == pytest.approx(125.0)
    low, high = found.speedup_ci
    assert (low, high) == pytest.approx((120.0, 130.0)), "the anchor's uncertainty is part of it"


def test_slow_programs_are_timed_against_a_short_anchor_that_is_known_well(
    tmp_path: Path,
) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    bench.naive_s = 2e-2
    blurred = Anchor("a", 20.0, 0.2, 1e-3)
    sharp = Anchor("b", 50.0, 0.02, 4e-4)
    assert bench.nearest(1e-2) is None
    bench.anchors = [blurred]
    assert bench.nearest(1e-2) is None
    bench.anchors = [blurred, sharp]
    assert bench.nearest(1e-2) is sharp
    assert bench.nearest(9e-4) is blurred
    bench.naive_s = 2e-3
    assert bench.nearest(1e-2) is None
    bench.naive_s = 2e-2
    outcome = play(bench, bench.naive.function, bench.naive_key)
    assert outcome.measurement.anchor_ratio == outcome.measurement.speedup == 1.0


def test_secret_and_public_seed_both_change_the_inputs(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    base = bench.rng(Regime.NORMAL, "x").random()
    assert base == bench.rng(Regime.NORMAL, "x").random()
    assert base != bench.rng(Regime.NORMAL, "y").random()
    assert base != bench.rng(Regime.RAMP, "x").random()
    for change in ({"secret": b"other"}, {"seed": 1}):
        bench.rules = replace(bench.rules, **change)
        assert base != bench.rng(Regime.NORMAL, "x").random()


def test_pools_are_drawn_again_and_forget_old_inputs(tmp_path: Path) -> None:
    bench = workbench(SetTimer({}), tmp_path)
    first, _ = bench.sets(Level.TRAINING, 0)
    again, _ = bench.sets(Level.TRAINING, 3)
    assert first[0] is again[0]
    later, _ = bench.sets(Level.TRAINING, 48)
    assert not np.array_equal(first[0].inputs[0], later[0].inputs[0])
    assert {epoch for _, epoch in bench.pool} == {1}
    full, timed = bench.sets(Level.FULL, 1)
    assert any(timed is s for s in full)
    assert not {id(s) for s in full} & {id(s) for s in bench.pool.values()}
