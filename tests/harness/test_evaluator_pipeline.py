"""`LocalEvaluator.evaluate_many`: what overlaps, what never does, and faults in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import tvm
from fakes import FakeCost
from handmade import (
    ROWS,
    WIDTH,
    annotated,
    edited,
    extern,
    host,
    program_of,
    quick,
    right,
    start,
    tiled,
    written_as,
)
from tvm import te, tirx

from tirgym.errors import EvaluationError, InvalidValueError
from tirgym.harness import local_evaluator, static_checks
from tirgym.harness.agent import Budget, Search
from tirgym.harness.evaluation import Level
from tirgym.harness.lane import Lane
from tirgym.harness.local_evaluator import Limits, LocalEvaluator
from tirgym.harness.outcome import Anchor
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.status import Status
from tirgym.harness.steps import finish
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import Call
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.verification import evaluate_in_sessions
from tirgym.harness.worker import Worker

LIMITS = Limits(build_s=60.0, gate_s=30.0)


@pytest.fixture(autouse=True)
def a_core_to_build_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two cores."""
    monkeypatch.setattr(local_evaluator, "free_cores", lambda target: 1)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with quick(static_checks=False, limits=LIMITS) as made:
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Process id and operation of every request."""
    log: list[tuple[int, str]] = []
    ask = Worker.start

    def logged(self: Worker, operation: str, *arguments: Any, **options: Any) -> Any:
        log.append((self.pid, operation))
        return ask(self, operation, *arguments, **options)

    monkeypatch.setattr(Worker, "start", logged)
    return log


def wrong() -> TensorIRProgram:
    return written_as(lambda a, i, j: a[i, j] + tirx.const(1.0, "float32"))


def endless() -> TensorIRProgram:
    return written_as(lambda a, i, j: right(a, i, j) + extern("float32", "pause"))


def refused_by_the_compiler() -> TensorIRProgram:
    return edited(
        lambda schedule, block: schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")
    )


def crash_of_the_compiler() -> TensorIRProgram:
    return written_as(lambda a, i, j: tirx.call_llvm_pure_intrin("float32", 2_000_000_000, a[i, j]))


def crash_of_the_kernel() -> TensorIRProgram:
    return written_as(lambda a, i, j: right(a, i, j) + extern("float32", "abort"))


def memory_bomb() -> TensorIRProgram:
    size = 1 << 36
    a = te.placeholder((ROWS, WIDTH), name="A")
    huge = te.compute((size,), lambda k: a[k % ROWS, k % WIDTH], name="huge")
    b = te.compute(
        (ROWS, WIDTH), lambda i, j: huge[i * tirx.const(size // ROWS, "int64") + j], name="B"
    )
    func = te.create_prim_func([a, b]).with_attr("global_symbol", "main")
    return program_of(tvm.IRModule({"main": func}))


def slow_to_build() -> TensorIRProgram:
    """A matmul of 32³, unrolled: many seconds of compiling."""
    a, b = (te.placeholder((32, 32), name=name) for name in "AB")
    r = te.reduce_axis((0, 32), "r")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    func = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": func}))
    for loop in schedule.get_loops(schedule.get_child_blocks(schedule.get_sblock("root"))[0]):
        schedule.unroll(loop)
    return program_of(schedule.mod)


def test_each_session_of_a_verification_is_a_process_of_its_own(
    asked: list[tuple[int, str]],
) -> None:
    with quick(limits=LIMITS) as made:
        made.evaluate(tiled(2))
        searched = {pid for pid, _ in asked}
        asked.clear()
        found = evaluate_in_sessions(made, tiled(2))
        sessions = [pid for pid, operation in asked if operation == "time"]
        assert made.evaluate(tiled(2)).measurement is not None, "and the evaluator goes on"
    assert found.passed
    assert len(found.sessions) == len(set(sessions)) >= 3
    assert not searched & set(sessions)
    assert found.speedup in found.sessions


def test_a_renewal_leaves_alone_what_is_being_evaluated() -> None:
    with quick(limits=LIMITS) as made:
        answers = made.evaluate_many([tiled(2), tiled(4), tiled(8)])
        statuses = [next(answers).status]
        made.renew()
        statuses.append(made.evaluate(tiled(16), Level.FULL, fresh=True).status)
        statuses += [evaluation.status for evaluation in answers]
    assert statuses == [Status.PASSED] * 4


def test_a_closed_evaluator_is_not_renewed() -> None:
    made = quick()
    made.close()
    with pytest.raises(EvaluationError, match="closed"):
        made.renew()


def test_answers_and_store_are_those_of_one_call_after_the_other() -> None:
    programs = [
        start(),
        tiled(2),
        tiled(8),
        annotated(),
        refused_by_the_compiler(),
        tiled(2),
        wrong(),
        wrong(),
        tiled(3),
    ]
    with quick(static_checks=False) as one, quick(static_checks=False) as many:
        singles = [one.evaluate(program) for program in programs]
        together = list(many.evaluate_many(programs))
        for single, answer in zip(singles, together, strict=True):
            assert answer.status is single.status
            assert (answer.ir_key, answer.code_key) == (single.ir_key, single.code_key)
            if single.measurement is not None and answer.measurement is not None:
                assert answer.measurement.reused == single.measurement.reused
        for stored in (one.store, many.store):
            assert [p.ir_key for p in stored.programs()] == sorted({p.ir_key for p in programs})
        kept = [[(r.key, r.level, r.status) for r in made.store.records()] for made in (one, many)]
        assert kept[0] == kept[1]
        first = together[2].measurement
        assert first is not None
        assert together[3].measurement == replace(first, reused=True)


class Diary:
    """A timer that notes when each sample began and ended, and in which process."""

    name = "diary"

    def __init__(self, path: str) -> None:
        self.path = path

    def time(self, call: Call, calls: int) -> float:
        began = time.monotonic()
        for _ in range(calls):
            call.function(*call.arguments)
        time.sleep(0.002)
        with open(self.path, "a", encoding="ascii") as file:
            file.write(f"{began} {time.monotonic()} {os.getpid()}\n")
        return 1e-6


def test_builds_overlap_and_timings_never_do(tmp_path: Path, asked: list[tuple[int, str]]) -> None:
    diary = tmp_path / "diary"
    with quick(timer=Diary(str(diary))) as made:
        answers = list(made.evaluate_many([tiled(n) for n in (2, 3, 4, 6, 8)]))
    assert all(answer.passed for answer in answers)
    rows = [line.split() for line in diary.read_text().splitlines()]
    samples = sorted((float(began), float(ended), int(pid)) for began, ended, pid in rows)
    assert all(now[1] <= following[0] for now, following in pairwise(samples))
    workers = [pid for pid, operation in asked if operation == "time"]
    assert len(set(workers)) == 2, "two workers take turns"
    assert [pid for pid, _ in groupby(pid for *_, pid in samples)] == workers, (
        "programs are timed in order"
    )
    operations = [operation for _, operation in asked]
    timed = [at for at, operation in enumerate(operations) if operation == "time"]
    begun = [operations[:at].count("build") for at in timed]
    assert any(n > k + 1 for k, n in enumerate(begun)), (
        "a build begins before the program ahead is timed"
    )


def test_one_worker_is_enough_without_a_free_core_or_a_pipeline(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[int, str]]
) -> None:
    programs = [tiled(2), tiled(4)]
    with quick(pipeline=False) as made:
        assert all(answer.passed for answer in made.evaluate_many(programs))
    assert len({pid for pid, _ in asked}) == 1
    asked.clear()
    monkeypatch.setattr(local_evaluator, "free_cores", lambda target: 0)
    with quick() as made:
        assert all(answer.passed for answer in made.evaluate_many(programs))
    assert len({pid for pid, _ in asked}) == 1


def test_nothing_overlaps_at_level_full(asked: list[tuple[int, str]]) -> None:
    with quick() as made:
        answers = made.evaluate_many([tiled(2), tiled(4), tiled(6)])
        assert next(answers).passed
        asked.clear()
        assert all(e.passed for e in made.evaluate_many([tiled(3), tiled(8)], Level.FULL))
        operations = [operation for _, operation in asked if operation != "prepare"]
        assert operations[-8:] == ["build", "load", "gate", "time"] * 2
        assert [answer.passed for answer in answers] == [True, True]


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (crash_of_the_compiler, Status.CRASH),
        (crash_of_the_kernel, Status.CRASH),
        (memory_bomb, Status.OUT_OF_MEMORY),
        (refused_by_the_compiler, Status.COMPILE_ERROR),
        (wrong, Status.WRONG_RESULT),
    ],
)
def test_a_fault_charges_its_own_program_alone(
    evaluator: LocalEvaluator, make: Any, status: Status
) -> None:
    programs = [tiled(2), make(), tiled(4), make(), tiled(6), tiled(8)]
    found = [e.status for e in evaluator.evaluate_many(programs, fresh=True)]
    passed = Status.PASSED
    assert found == [passed, status, passed, status, passed, passed]


def test_a_build_that_takes_too_long_charges_its_own_program_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(static_checks, "STATEMENT_LIMIT", 1 << 20)
    limits = replace(LIMITS, build_s=2.5)
    with quick(static_checks=False, limits=limits) as made:
        assert made.evaluate(start()).passed
        found = list(made.evaluate_many([tiled(2), slow_to_build(), tiled(4), tiled(6)]))
    passed = Status.PASSED
    assert [e.status for e in found] == [passed, Status.TIMEOUT, passed, passed]
    assert found[1].message.startswith("build did not end")


def test_what_is_refused_is_raised_at_its_turn(evaluator: LocalEvaluator) -> None:
    other = replace(host(), arch="haswell" if host().arch != "haswell" else "skylake")
    foreign = TensorIRProgram.start(start().workload, other)
    answers = evaluator.evaluate_many([tiled(2), foreign, tiled(4)], fresh=True)
    assert next(answers).passed
    with pytest.raises(InvalidValueError, match="the evaluator's"):
        next(answers)
    assert list(answers) == []


def test_what_is_not_asked_for_leaves_no_trace() -> None:
    with quick() as made:
        answers = made.evaluate_many([tiled(2), tiled(4), tiled(8)])
        first = next(answers)
        answers.close()
        assert [record.key for record in made.store.records()] == [first.code_key]
        assert [program.ir_key for program in made.store.programs()] == [tiled(2).ir_key]
        assert [e.passed for e in made.evaluate_many([tiled(4), tiled(8)])] == [True, True]


def test_other_calls_may_come_between_two_answers(evaluator: LocalEvaluator) -> None:
    answers = evaluator.evaluate_many([tiled(2), tiled(4), tiled(6)], fresh=True)
    assert next(answers).passed
    assert evaluator.evaluate(tiled(3), fresh=True).passed
    assert evaluator.evaluate(tiled(3), Level.FULL, fresh=True).passed
    assert evaluator.check(tiled(12)).status is Status.PASSED
    nested = evaluator.evaluate_many([tiled(8), wrong()], fresh=True)
    assert [e.status for e in nested] == [Status.PASSED, Status.WRONG_RESULT]
    assert [e.passed for e in answers] == [True, True]


def test_an_evaluator_that_is_closed_between_two_answers_says_so() -> None:
    made = quick()
    answers = made.evaluate_many([tiled(2), tiled(4), tiled(6)])
    assert next(answers).passed
    made.close()
    with pytest.raises(EvaluationError, match="closed"):
        next(answers)


def test_ctrl_c_kills_both_workers_and_a_search_keeps_its_history() -> None:
    def propose(search: Search) -> None:
        list(search.evaluate_many([tiled(2), tiled(4), endless(), endless_too()]))

    def endless_too() -> TensorIRProgram:
        return written_as(lambda a, i, j: extern("float32", "pause") + right(a, i, j))

    class Player:
        name = "player"
        run = staticmethod(propose)

    with quick(static_checks=False) as made:
        run = SearchRun(start(), default_vocabulary("llvm"), FakeCost(), made, Budget(9))
        timer = threading.Thread(target=_interrupt_when, args=(lambda: len(run.history) == 3,))
        timer.start()
        assert run.run(Player()) is Stopped.INTERRUPTED
        timer.join()
        assert [c.evaluation.passed for c in run.history] == [True] * 3
        lanes = made._workshop.lanes
        assert len(lanes) == 2
        assert not any(lane.busy or lane.pool._current for lane in lanes)
        assert [e.passed for e in made.evaluate_many([tiled(6), tiled(8)])] == [True, True]


def _interrupt_when(condition: Any) -> None:
    while not condition():
        time.sleep(0.01)
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGINT)


PARENT = """
import sys
sys.path.insert(0, {tests!r})
from handmade import extern, quick, right, start, tiled, written_as
from tirgym.harness import local_evaluator, static_checks

local_evaluator.free_cores = lambda target: 1

def endless():
    return written_as(lambda a, i, j: right(a, i, j) + extern("float32", "pause"))

with quick(static_checks=False) as evaluator:
    for answer in evaluator.evaluate_many([tiled(2), tiled(4), endless(), endless()]):
        print(answer.status, flush=True)
"""


def test_a_parent_that_is_killed_leaves_no_worker_behind(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.replace("{tests!r}", repr(str(Path(__file__).parents[1]))))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert [parent.stdout.readline() for _ in range(2)] == ["passed\n"] * 2
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) >= 5, "the server, two workers, two spares"
    parent.kill()
    parent.wait(60)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive


def test_an_anchor_of_one_lane_is_told_to_the_other_once(
    evaluator: LocalEvaluator, asked: list[tuple[int, str]]
) -> None:
    list(evaluator.evaluate_many([tiled(2), tiled(4)], fresh=True))
    workshop = evaluator._workshop
    desk = workshop.desk(start().workload, host())
    lanes: list[Lane] = workshop.lanes[:2]
    asked.clear()
    known = len(desk.anchors)
    desk.anchors.append(Anchor(desk.naive_json, 1.0, 0.01, 1e9))
    list(evaluator.evaluate_many([tiled(n) for n in (2, 4, 6, 8)], fresh=True))
    told = Counter(pid for pid, operation in asked if operation == "add_anchor")
    new = len(desk.anchors) - known  # a candidate may have become one as well
    assert len(told) == 2
    assert max(told.values()) <= new
    worker, _ = finish(lanes[0].worker(desk))
    finish(lanes[0].share_anchors(worker, desk))
    asked.clear()
    finish(lanes[0].share_anchors(worker, desk))
    assert asked == []
