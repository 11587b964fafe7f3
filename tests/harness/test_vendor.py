"""Vendor baselines: every table entry computes its kernel; a wrong one gets no number."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tirgym.errors import UnknownNameError
from tirgym.harness import vendor, vendor_numpy, vendor_numpy_programs, vendor_torch
from tirgym.harness.backend import backend
from tirgym.harness.status import Status
from tirgym.harness.transforms.reorder import Reorder
from tirgym.harness.transforms.vectorize import Vectorize
from tirgym.harness.vendor import measure_here, measure_vendor, vendor_libraries
from tirgym.harness.worker_device import BoundCall
from tirgym.kernels_suite.kernel import Array, Regime, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of, tensors
from tirgym.kernels_suite.registry import load_kernel, load_workload


def bound(module: Any, kernel: str) -> tuple[BoundCall, tuple[Array, ...], tuple[Array, ...]]:
    """The call of `module` on small inputs, these, and outputs of zeros."""
    workload = tiny(kernel)
    inputs = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    outputs = tuple(np.zeros(t.shape, t.dtype) for t in tensors(workload)[1])
    return module.bind(kernel, (*inputs, *outputs), 1), inputs, outputs


def tiny(kernel: str) -> Workload:
    found = load_kernel(kernel)
    return Workload.of(found, found.tiny_shape)


def check(module: Any, kernel: str) -> None:
    """The call of `module` on small inputs, against the reference; inputs stay as they were."""
    call, inputs, outputs = bound(module, kernel)
    before = [array.copy() for array in inputs]
    call.run()
    call.keep()
    for got, expected in zip(outputs, reference_of(tiny(kernel), inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for array, same in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, same)


@pytest.mark.parametrize("kernel", sorted(vendor_numpy.NUMPY))
def test_numpy_computes(kernel: str) -> None:
    check(vendor_numpy, kernel)


@pytest.mark.parametrize("kernel", sorted(vendor_numpy_programs.PROGRAMS))
def test_numpy_programs_compute(kernel: str) -> None:
    check(vendor_numpy_programs, kernel)


@pytest.mark.parametrize("kernel", sorted(vendor_torch.TORCH))
def test_torch_computes(kernel: str) -> None:
    pytest.importorskip("torch")
    check(vendor_torch, kernel)


@pytest.mark.parametrize("kernel", sorted(vendor_torch.TORCH))
def test_torch_does_not_copy_what_it_computed(kernel: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[Any] = []

    def record(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen.append(func)
        return func(*args, **(kwargs or {}))

    recorder = type("Recorder", (TorchDispatchMode,), {"__torch_dispatch__": record})
    call = bound(vendor_torch, kernel)[0]
    with recorder():
        call.run()
    writing = [f for f in seen if f._schema.is_mutable]
    assert seen
    assert not [str(f) for f in writing if torch.Tag.generated in f.tags]


def test_a_result_that_torch_returns_is_judged_and_its_copy_is_not_timed() -> None:
    pytest.importorskip("torch")
    call, _, (out,) = bound(vendor_torch, "layernorm")
    call.run()
    assert not out.any()
    call.keep()
    assert out.any()


def test_a_wrong_result_of_torch_gets_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")

    def shifted(x: Any, gamma: Any, beta: Any, out: Any) -> Any:
        right = vendor_torch.layernorm(x, gamma, beta, out)
        return lambda: right() + 0.01

    monkeypatch.setattr(vendor_torch, "TORCH", {"layernorm": shifted})
    result = measure_here(tiny("layernorm"), backend("llvm").target(), "torch")
    assert (result.status, result.speedup) == (Status.WRONG_RESULT, None)


def test_a_result_that_goes_wrong_while_it_is_timed_gets_no_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    calls = itertools.count()

    def tiring(x: Any, gamma: Any, beta: Any, out: Any) -> Any:
        right = vendor_torch.layernorm(x, gamma, beta, out)
        return lambda: right() if next(calls) < 100 else right() + 0.01

    monkeypatch.setattr(vendor_torch, "TORCH", {"layernorm": tiring})
    result = measure_here(tiny("layernorm"), backend("llvm").target(), "torch")
    assert (result.status, result.speedup) == (Status.WRONG_RESULT, None)
    assert result.message.startswith("after timing: ")


def test_measured_in_a_process_of_its_own() -> None:
    workload = load_workload("matmul", {"m": 32, "n": 32, "k": 32})
    result = measure_vendor(workload, backend("llvm").target(), "numpy")
    assert result.status in (Status.PASSED, Status.NOISY)
    assert result.version.startswith(f"numpy {np.__version__} (")
    assert (result.stats is None) == (result.speedup is None) == (result.status is Status.NOISY)


def test_a_library_does_not_see_which_machine_code_the_user_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    baseline = np.show_config(mode="dicts")["SIMD Extensions"]["baseline"]
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", " ".join(baseline))  # NumPy refuses to load so
    workload = load_workload("add", {"m": 8, "n": 8})
    result = measure_vendor(workload, backend("llvm").target(), "numpy")
    assert result.status in (Status.PASSED, Status.NOISY)


def test_timed_against_a_given_program_it_answers_the_ratio_to_that() -> None:
    workload = load_workload("matmul", {"m": 64, "n": 64, "k": 64})
    compiler = backend("llvm")
    start = compiler.start(workload, compiler.target())
    fast = start.apply(Reorder(1)).apply(Vectorize(2))  # several times as fast
    given = measure_here(workload, compiler.target(), "numpy", compiler.module_json(fast))
    naive = measure_here(workload, compiler.target(), "numpy")
    assert given.speedup is not None
    assert naive.speedup is not None
    assert given.speedup < naive.speedup / 2


def test_a_wrong_call_gets_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def almost(a: Any, b: Any, c: Any) -> None:
        np.matmul(a, b, out=c)
        c[-1, -1] = 0.0

    monkeypatch.setattr(vendor_numpy, "NUMPY", {"matmul": almost})
    workload = load_workload("matmul", {"m": 8, "n": 8, "k": 8})
    result = measure_here(workload, backend("llvm").target(), "numpy")
    assert result.status is Status.WRONG_RESULT
    assert result.message
    assert (result.stats, result.speedup) == (None, None)


def test_libraries_by_kernel() -> None:
    assert "numpy" in vendor_libraries("matmul", "llvm")
    assert "numpy" not in vendor_libraries("softmax", "llvm")
    with pytest.raises(UnknownNameError, match="blas9"):
        measure_vendor(load_workload("matmul"), backend("llvm").target(), "blas9")


def test_tables_name_suite_kernels() -> None:
    for library in vendor.LIBRARIES.values():
        for name in getattr(import_module(library.module), library.table):
            assert load_kernel(name).suite == "core-v0"
    assert not set(vendor_numpy.NUMPY) & set(vendor_numpy_programs.PROGRAMS)
