"""Trick: answer zeros where right answers are small, and hope for an absolute tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from handmade import program_of
from tvm import te, tirx

from tirgym.harness.mutants import mutate
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.kernel import Array, Kernel, Workload
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]
SCALE = 1e-12


def build_faint(shape: Any) -> Any:
    x = te.placeholder((shape["m"], shape["n"]), "float32", "x")
    small = tirx.const(SCALE, "float32")
    return te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * small, "out")])


def faint(x: Array) -> Array:
    return x * float(np.float32(SCALE))


FAINT = Workload.of(Kernel("faint", "cheat", build_faint, faint, ({"m": 32, "n": 40},)))


@pytest.mark.parametrize(
    "uri",
    [
        "tirgym://core-v0/softmax?m=16&n=1000&dtype=float32",
        "tirgym://core-v0/row_mean?m=20&n=1008&dtype=float32",
    ],
    ids=["probabilities of a thousandth", "means of nearly zero"],
)
def test_zeros_for_small_results(uri: str, host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(load_workload(uri), host_target)
    unpaid(program_of(mutate("constant_output", start.mod), start.workload))


def test_zeros_for_values_of_a_trillionth(host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(FAINT, host_target)
    unpaid(program_of(mutate("constant_output", start.mod), FAINT))
