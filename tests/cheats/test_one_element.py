"""Trick: be right nearly everywhere, and hope for a sample or a share of matching elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handmade import program_of

from tirgym.harness.mutants import mutate
from tirgym.harness.target import Target
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.kernels_suite.registry import load_workload

Unpaid = Callable[..., Any]
MILLION = "tirgym://core-v0/add?m=1000&n=1024&dtype=float32"


def test_one_wrong_element_in_a_million(host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(load_workload(MILLION), host_target)
    found = unpaid(program_of(mutate("one_element_wrong", start.mod), start.workload))
    assert "[500, 512]" in found.message


def test_one_unwritten_element_in_a_million(host_target: Target, unpaid: Unpaid) -> None:
    start = TensorIRProgram.start(load_workload(MILLION), host_target)
    found = unpaid(program_of(mutate("last_element_unwritten", start.mod), start.workload))
    assert "[999, 1023]: nan" in found.message
