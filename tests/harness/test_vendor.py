"""Vendor baselines: every table entry computes its kernel; a wrong one gets no number."""

from __future__ import annotations

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
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of, tensors
from tirgym.kernels_suite.registry import load_kernel, load_workload


def check(module: Any, kernel: str) -> None:
    """The call of `module` on small inputs, against the reference; inputs stay as they were."""
    found = load_kernel(kernel)
    workload = Workload.of(found, found.tiny_shape)
    inputs = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    outputs = tuple(np.zeros(t.shape, t.dtype) for t in tensors(workload)[1])
    before = [array.copy() for array in inputs]
    module.bind(kernel, (*inputs, *outputs), 1)()
    for got, expected in zip(outputs, reference_of(workload, inputs), strict=True):
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
