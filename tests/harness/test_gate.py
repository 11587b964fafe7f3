"""The gate on kernels in plain Python: poison, guard bands, repeated runs, stale intermediates."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tirgym.harness.buffers import ALIGNMENT, GUARD_BYTES, GuardedBuffer, Poison
from tirgym.harness.gate import Bench, GateOutcome, InputSet, run_gate
from tirgym.harness.judge import Expected
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Regime, Tensor

Array = NDArray[Any]
SHAPE = (6, 10)
Kernel = Callable[[Array, Array], None]


class ArrayBench(Bench):
    """Hands NumPy arrays to the kernel instead of device tensors."""

    def arguments(self) -> tuple[Any, ...]:
        return tuple(buffer.array for buffer in (*self.inputs, *self.outputs))


def bench(dtype: str = "float32", bitwise: bool = False) -> ArrayBench:
    given, made = (
        GuardedBuffer(Tensor("A", SHAPE, dtype), 0),
        GuardedBuffer(Tensor("B", SHAPE, dtype), 1),
    )
    return ArrayBench([given], [made], bitwise=bitwise)


def input_set(seed: int, dtype: str = "float32", regime: Regime = Regime.NORMAL) -> InputSet:
    """Row maxima so far: B[i, j] = max(A[i, :j + 1])."""
    values = np.random.default_rng(seed).standard_normal(SHAPE) * 50
    inputs = values.astype(dtype)
    reference = np.maximum.accumulate(inputs, axis=1)
    wide = reference.astype(np.float64) if np.dtype(dtype).kind == "f" else reference
    return InputSet(regime, (inputs,), (Expected.of("B", wide, reference, 1, None),))


SETS = [input_set(1), input_set(2, regime=Regime.RAMP)]


def right(a: Array, b: Array) -> None:
    b[...] = np.maximum.accumulate(a, axis=1)


def judged(kernel: Kernel, sets: list[InputSet] = SETS, dtype: str = "float32") -> GateOutcome:
    return run_gate(bench(dtype), kernel, sets)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_a_right_kernel_passes(dtype: str) -> None:
    found = judged(right, [input_set(1, dtype), input_set(2, dtype)], dtype)
    assert found.status is Status.PASSED
    assert found.report.bit_identical
    assert found.report.failure == ""
    assert found.report.regimes == ("normal",)
    assert 0.0 < found.seconds <= found.runs_s


def nothing(a: Array, b: Array) -> None:
    """Leaves what was there."""


def one_missing(a: Array, b: Array) -> None:
    old = b[5, 9]
    right(a, b)
    b[5, 9] = old


def dropped_initial_value(a: Array, b: Array) -> None:
    """A maximum over what was there; NaN loses every comparison, so NaN alone would not show."""
    new = np.maximum.accumulate(a, axis=1)
    with np.errstate(invalid="ignore"):
        b[...] = np.where(b > new, b, new)


def writes_input(a: Array, b: Array) -> None:
    right(a, b)
    a[0, 0] = -a[0, 0]


def writes_past_the_end(a: Array, b: Array) -> None:
    right(a, b)
    memory(b, b.nbytes, 1)[:] = 7


def writes_before_the_start(a: Array, b: Array) -> None:
    right(a, b)
    memory(b, -1, 1)[:] = 7


def writes_past_an_input(a: Array, b: Array) -> None:
    right(a, b)
    memory(a, a.nbytes + GUARD_BYTES - 1, 1)[:] = 7


def reads_past_an_input(a: Array, b: Array) -> None:
    """The row after the last one."""
    beyond = memory(a, a.nbytes, a.itemsize * SHAPE[1]).view(a.dtype)
    right(a, b)
    b[5] = np.maximum(b[5], beyond)


def memory(array: Array, offset: int, size: int) -> Array:
    """Bytes relative to the start of `array`, as a kernel with a wrong index would touch them."""
    pointer = (ctypes.c_uint8 * size).from_address(array.ctypes.data + offset)
    found: Array = np.ctypeslib.as_array(pointer)
    return found


CHEATS = [
    nothing,
    one_missing,
    dropped_initial_value,
    writes_input,
    writes_past_the_end,
    writes_before_the_start,
    writes_past_an_input,
    reads_past_an_input,
]


@pytest.mark.parametrize("kernel", CHEATS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_wrong_kernels_fail(kernel: Kernel, dtype: str) -> None:
    if kernel is reads_past_an_input and dtype == "int32":
        pytest.skip("an integer guard holds a value that a maximum can lose against")
    sets = [input_set(1, dtype), input_set(2, dtype)]
    found = judged(kernel, sets, dtype)
    assert found.status is Status.WRONG_RESULT
    assert found.report.failure
    assert found.failing in sets


def test_damage_is_named_and_repaired() -> None:
    place = bench()
    assert (
        "1 bytes before its start" in run_gate(place, writes_before_the_start, SETS).report.failure
    )
    assert "0 bytes after its end" in run_gate(place, writes_past_the_end, SETS).report.failure
    assert "A: an input was changed" in run_gate(place, writes_input, SETS).report.failure
    assert place.tainted
    assert run_gate(place, right, SETS).status is Status.PASSED


def test_a_right_answer_left_in_the_output_does_not_count() -> None:
    place = bench()
    run_gate(place, right, SETS[:1])
    assert run_gate(place, nothing, SETS[:1]).status is Status.WRONG_RESULT
    place.answers_left = True
    assert run_gate(place, nothing, SETS[:1]).status is Status.WRONG_RESULT


def test_an_intermediate_left_by_the_run_before_does_not_count() -> None:
    """A kernel whose producer is missing uses what an earlier kernel left in the workspace."""
    workspace = np.maximum.accumulate(SETS[0].inputs[0], axis=1)

    def consumer(a: Array, b: Array) -> None:
        b[...] = workspace

    assert judged(consumer, SETS).status is Status.WRONG_RESULT


def test_results_that_change_from_run_to_run_are_flaky() -> None:
    calls: list[int] = []

    def every_third_run(a: Array, b: Array) -> None:
        calls.append(1)
        right(a, b)
        if len(calls) % 3 == 0:
            b[0, 0] = np.nextafter(b[0, 0], np.float32(1e9))

    found = judged(every_third_run)
    assert found.status is Status.FLAKY
    assert "two runs" in found.report.failure


def test_a_wrong_result_that_comes_and_goes_is_flaky() -> None:
    calls: list[int] = []

    def once(a: Array, b: Array) -> None:
        calls.append(1)
        right(a, b)
        if len(calls) == 1:
            b[0, 0] = 1e9

    found = judged(once)
    assert found.status is Status.FLAKY
    assert "instead of" in found.report.failure


def test_every_set_is_run_twice_first_runs_first() -> None:
    seen: list[float] = []

    def record(a: Array, b: Array) -> None:
        seen.append(float(a[0, 0]))
        right(a, b)

    judged(record)
    first, second = (float(s.inputs[0][0, 0]) for s in SETS)
    assert seen == [first, second, first, second]
    seen.clear()
    run_gate(bench(), record, SETS, reruns=1)
    assert seen == [first, second, first]


def test_a_slow_kernel_is_cut_off_after_it_was_right_once() -> None:
    calls: list[int] = []

    def slow(a: Array, b: Array) -> None:
        calls.append(1)
        time.sleep(0.01)
        right(a, b)

    found = run_gate(bench(), slow, SETS, slow_s=0.005)
    assert found.status is Status.TOO_SLOW
    assert len(calls) == 2
    wrong = run_gate(bench(), lambda a, b: time.sleep(0.01), SETS, slow_s=0.005)
    assert wrong.status is Status.WRONG_RESULT


def test_one_slow_call_is_not_enough_to_be_cut_off() -> None:
    calls: list[int] = []

    def slow_once(a: Array, b: Array) -> None:
        calls.append(1)
        if len(calls) == 1:
            time.sleep(0.05)
        right(a, b)

    assert run_gate(bench(), slow_once, SETS, slow_s=0.03).status is Status.PASSED


def test_bitwise_mode_demands_the_unscheduled_programs_bits() -> None:
    def rounded(a: Array, b: Array) -> None:
        right(a, b)
        b[2, 3] = np.nextafter(b[2, 3], np.float32(1e9))

    assert judged(rounded).status is Status.PASSED
    assert not judged(rounded).report.bit_identical
    found = run_gate(bench(bitwise=True), rounded, SETS)
    assert found.status is Status.WRONG_RESULT
    assert "bitwise" in found.report.failure
    assert run_gate(bench(bitwise=True), right, SETS).status is Status.PASSED


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (64, 64)])
def test_buffers_are_aligned_and_poisoned(dtype: str, shape: tuple[int, ...]) -> None:
    for index in range(5):
        buffer = GuardedBuffer(Tensor("A", shape, dtype), index)
        assert buffer.array.ctypes.data % ALIGNMENT == 0
        assert buffer.array.shape == shape
        assert buffer.array.dtype == dtype
        assert buffer.overrun() is None
        seen = set()
        for poison in Poison:
            buffer.poison(poison)
            assert buffer.overrun() is None
            seen.add(buffer.array.tobytes())
        assert len(seen) >= 2


def test_equal_parameters_start_at_the_same_page_offset() -> None:
    tensor = Tensor("A", (7, 9), "float32")
    starts = [GuardedBuffer(tensor, 2).array.ctypes.data % 4096 for _ in range(3)]
    assert len(set(starts)) == 1
    assert GuardedBuffer(tensor, 3).array.ctypes.data % 4096 != starts[0]


def test_a_device_tensor_is_the_same_memory() -> None:
    buffer = GuardedBuffer(Tensor("A", (4, 4), "float32"))
    buffer.array[...] = 3.0
    assert (buffer.device.numpy() == 3.0).all()
    buffer.array[1, 2] = 4.0
    assert buffer.device.numpy()[1, 2] == 4.0
