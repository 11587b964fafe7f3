"""Trick: add up a part of the terms, and hope that the rest is small or that nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from handmade import program_of
from tvm import te, tirx

from tirgym.harness.evaluation import Level
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]


@pytest.mark.parametrize("kernel", ["row_sum", "matmul", "softmax"])
def test_half_of_the_terms(kernel: str, host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(load_workload(kernel), host_target)
    unpaid(program_of(mutate("reduction_halved", start.mod), start.workload))


def test_all_terms_but_one_of_a_thousand(host_target: Target, unpaid: Unpaid) -> None:
    """The part left out is far smaller than the sum."""
    workload = load_workload("tirgym://core-v0/row_sum?m=40&n=1000&dtype=float32")
    x = te.placeholder((40, 1000), "float32", "x")
    k = te.reduce_axis((0, 999), "k")
    total = te.compute((40,), lambda i: te.sum(x[i, k], axis=k), "total")
    func = te.create_prim_func([x, total]).with_attr("global_symbol", "main")
    unpaid(program_of(_module(func), workload))


def test_terms_that_look_like_zero_are_skipped(
    host_target: Target, evaluator: LocalEvaluator
) -> None:
    """Right up to rounding on most inputs, wrong where everything is small: one regime shows it.

    Training looks at two regimes at a time, in turn; a full check looks at all of them.
    """
    workload = load_workload("tirgym://core-v0/row_sum?m=40&n=1000&dtype=float32")
    x = te.placeholder((40, 1000), "float32", "x")
    k = te.reduce_axis((0, 1000), "k")
    low, zero = tirx.const(1e-3, "float32"), tirx.const(0.0, "float32")
    total = te.compute(
        (40,),
        lambda i: te.sum(tirx.if_then_else(tirx.abs(x[i, k]) > low, x[i, k], zero), axis=k),
        "total",
    )
    func = te.create_prim_func([x, total]).with_attr("global_symbol", "main")
    program = program_of(_module(func), workload)
    assert evaluator.check(program, Level.FULL).status is Status.WRONG_RESULT
    turns = [evaluator.check(program, Level.TRAINING).status for _ in range(3)]
    assert Status.WRONG_RESULT in turns


def _module(func: Any) -> Any:
    import tvm

    return tvm.IRModule({"main": func})
