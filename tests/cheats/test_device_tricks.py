"""Tricks on an OpenCL device, without static checks in front: the gate on the device's memory finds them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from device_programs import (
    MIRRORED,
    ROWS,
    WIDTH,
    evaluators,
    mirrored_rows,
    needs_opencl,
    opencl_target,
    verdict_without_barriers,
    with_statement,
)

from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Level
from tirgym.harness.evaluation_run import static_finding
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.mutants import mutate
from tirgym.harness.own_process import call_apart
from tirgym.harness.status import Status
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram

pytestmark = needs_opencl


@pytest.fixture(scope="module")
def device() -> Iterator[LocalEvaluator]:
    yield from evaluators(static_checks=False)


def _start() -> TensorIRProgram:
    program = backend("opencl").start(MIRRORED, opencl_target())
    assert isinstance(program, TensorIRProgram)
    return program


def test_the_right_program_passes(device: LocalEvaluator) -> None:
    program = mirrored_rows(opencl_target(), "shared")
    assert not static_finding(program)
    found = device.evaluate(program, Level.FULL)
    assert found.status is Status.PASSED, found.message


def test_a_missing_barrier() -> None:
    """The same source with its barriers and without: threads read what others have not written yet."""
    assert call_apart(verdict_without_barriers, False, num_threads=1)[0] == Status.PASSED
    status, message = call_apart(verdict_without_barriers, True, num_threads=1)
    assert status in (Status.WRONG_RESULT, Status.FLAKY), message


def test_threads_that_exchange_through_memory_of_their_own(device: LocalEvaluator) -> None:
    """Refused by a rule; without rules in front of it, by the gate."""
    program = mirrored_rows(opencl_target(), "global")
    assert "another thread of threadIdx.x reads" in static_finding(program)
    found = device.evaluate(program, fresh=True)
    assert found.status in (Status.WRONG_RESULT, Status.FLAKY), found.message
    assert found.measurement is None


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (f"C[{ROWS - 1}, {WIDTH}] = T.float32(7)", "C: written"),
        ("C[0, -1] = T.float32(7)", "before its start"),
        ("A[0, -1] = T.float32(7)", "A: written"),
    ],
)
def test_a_write_outside_of_a_buffer(device: LocalEvaluator, line: str, where: str) -> None:
    found = device.evaluate(with_statement(_start(), line), fresh=True)
    assert found.status is Status.WRONG_RESULT, found.message
    assert where in found.message


def test_zeros(device: LocalEvaluator) -> None:
    start = _start()
    mod = mutate("constant_output", start.mod)
    program = TensorIRProgram(start.workload, start.target, (), new_schedule(mod))
    found = device.evaluate(program, fresh=True)
    assert found.status is Status.WRONG_RESULT
    assert found.measurement is None
