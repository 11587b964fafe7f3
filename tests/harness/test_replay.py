"""Replaying a trace: the same program again, or one clear reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirgym.errors import IllegalTransformError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.replay import replay, replay_steps
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.registry import load_kernel


@pytest.fixture
def trace() -> Trace:
    kernel = load_kernel("matmul")
    workload = Workload.of(kernel, kernel.tiny_shape)
    return Trace(
        workload.uri, backend("llvm").target(), ("Split(loop=2, factor=2)", "Reorder(loop=1)")
    )


def test_each_step_is_shown_and_the_last_is_the_program(trace: Trace) -> None:
    programs = list(replay_steps(trace))
    assert [len(p.steps) for p in programs] == [0, 1, 2]
    assert replay(trace).ir_key == programs[-1].ir_key
    assert replay(replace(trace, ir_key=programs[-1].ir_key)).steps == programs[-1].steps


def test_another_program_than_the_recorded_one_is_refused(trace: Trace) -> None:
    with pytest.raises(TargetMismatchError, match="another program"):
        replay(replace(trace, ir_key="0" * 16))


def test_an_illegal_step_is_named_by_its_number(trace: Trace) -> None:
    damaged = replace(trace, transforms=(*trace.transforms, "Split(loop=0, factor=7777)"))
    with pytest.raises(IllegalTransformError, match="step 3 of the trace, loop 0"):
        replay(damaged)
