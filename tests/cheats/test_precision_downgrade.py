"""Trick: compute in fewer bits than was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm_ffi
from handmade import program_of
from tvm.tirx import BufferStore, Cast

from tirgym.harness.mutants import mutate
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]


@pytest.mark.parametrize("kind", ["accumulate_float16", "inputs_float16"])
@pytest.mark.parametrize("kernel", ["matmul", "row_sum"])
def test_half_precision(kernel: str, kind: str, host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(load_workload(kernel), host_target)
    unpaid(program_of(mutate(kind, start.mod), start.workload))


@pytest.mark.parametrize("kernel", ["add", "gelu"])
def test_results_rounded_to_half_precision(
    kernel: str, host_target: Target, unpaid: Unpaid
) -> None:
    start = TensorIRProgram.start(load_workload(kernel), host_target)

    def narrow(store: Any) -> Any:
        half = Cast("float32", Cast("float16", store.value))
        return BufferStore(store.buffer, half, store.indices)

    unpaid(program_of(tvm_ffi.structural_map(start.mod, (BufferStore, narrow)), start.workload))
