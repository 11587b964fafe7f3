"""Trick: be right sometimes; a race, or a coin, and as many tries as it takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from handmade import extern, host, program_of, right, written_as
from tvm import tirx
from tvm.tirx import For, ForKind

from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]


def coin() -> Any:
    """0 or 1 by chance, as float32."""
    return tirx.Cast("float32", tirx.bitwise_and(extern("int32", "rand"), 1))


def test_last_bit_by_chance(unpaid: Unpaid) -> None:
    """Always within the tolerance, never twice the same."""
    tiny = tirx.const(2e-7, "float32")
    one = tirx.const(1.0, "float32")
    unpaid(written_as(lambda a, i, j: right(a, i, j) * (one + coin() * tiny)), Status.FLAKY)


def test_wrong_by_chance(unpaid: Unpaid) -> None:
    unpaid(written_as(lambda a, i, j: right(a, i, j) + coin()), Status.FLAKY, Status.WRONG_RESULT)


def test_uninitialised_memory(unpaid: Unpaid) -> None:
    """An intermediate that is written after it is read, and often still holds the last call's."""

    def module() -> Any:
        from tvm.script import tirx as T

        @T.prim_func(s_tir=True)
        def main(A: T.Buffer((48, 40), "float32"), B: T.Buffer((48, 40), "float32")) -> None:  # type: ignore[valid-type]
            T.func_attr({"global_symbol": "main", "tirx.noalias": True})
            kept = T.sblock_alloc_buffer((48, 40), "float32")
            for i, j in T.grid(48, 40):
                with T.sblock("B"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    B[v_i, v_j] = kept[v_i, v_j]  # type: ignore[index]
            for i, j in T.grid(48, 40):
                with T.sblock("kept"):
                    v_i, v_j = T.axis.remap("SS", [i, j])
                    kept[v_i, v_j] = A[v_i, v_j] * T.float32(2) + T.float32(1)  # type: ignore[index]

        return tvm.IRModule({"main": main})

    for _ in range(2):
        unpaid(program_of(module()), Status.WRONG_RESULT, Status.FLAKY)


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
