"""Trick: threads that overwrite each other's sums, which most elements and most runs survive."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tvm
import tvm_ffi
from handmade import host
from tvm.tirx import For, ForKind

from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload


def racy(columns: int, target: Target) -> TensorIRProgram:
    """All terms of each sum are added at once by several threads, which overwrite each other."""
    workload = load_workload(f"tirgym://core-v0/row_sum?m=2&n={columns}&dtype=float32")
    start = TensorIRProgram.start(workload, target)
    terms = start.nest.loops[1].node

    def race(loop: Any) -> Any:
        parallel = loop.loop_var.same_as(terms.loop_var)
        kind = ForKind.PARALLEL if parallel else loop.kind
        return For(loop.loop_var, loop.min, loop.extent, kind, loop.body)

    func = tvm_ffi.structural_map(start.mod["main"], (For, race))
    return TensorIRProgram(workload, target, (), new_schedule(tvm.IRModule({"main": func})))


two_threads = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a race needs two threads")


@two_threads
def test_a_long_race_is_seen() -> None:
    target = host(num_threads=2)
    with LocalEvaluator(target, ":memory:", static_checks=False) as dynamic:
        # on a busy machine both threads may run one after the other, and then nothing is wrong
        program = racy(2_000_000, target)
        found = {dynamic.evaluate(program, fresh=True).status for _ in range(5)}
    assert found & {Status.FLAKY, Status.WRONG_RESULT}, found


@two_threads
def test_a_short_race_that_luck_hides_is_refused_before_it_runs() -> None:
    """The second thread wakes up after the first is done, so that most runs are right."""
    target = host(num_threads=2)
    with LocalEvaluator(target, ":memory:") as evaluator:
        found = evaluator.evaluate(racy(400, target))
    assert found.status is Status.ILLEGAL
    assert "races" in found.message
    assert found.measurement is None
