"""Prepared kernels: files that round-trip, are noticed when damaged, and run as CUDA C on the stand-in."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_stand_in import StandInDriver, fake_cupy, needs_compiler

from tirgym.errors import (
    BackendUnavailableError,
    CompileFailedError,
    DamagedFileError,
    DeviceError,
    InvalidValueError,
    UsageError,
)
from tirgym.harness.cuda import compiling
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.cuda.kernels import CudaKernels, image_of
from tirgym.harness.cuda.prepared import PreparedKernel, PreparedProgram, prepared_files
from tirgym.harness.cuda.program import CudaProgram, Problem
from tirgym.harness.launches import DeviceCode, Launch
from tirgym.kernels_suite.kernel import Tensor
from tirgym.kernels_suite.problem import bytes_of, tensors, terms_of

SOURCE = """
#include <cuda.h>
extern "C" __global__ void __launch_bounds__(8) twice(float* __restrict__ y, float* __restrict__ x) {
  __shared__ float row[8];
  row[threadIdx.x] = x[blockIdx.x * 8 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 8 + threadIdx.x] = row[7 - (int)threadIdx.x];
}
extern "C" __global__ void back(float* __restrict__ y, float* __restrict__ x) {
  y[blockIdx.x * 8 + threadIdx.x] = max(x[blockIdx.x * 8 + 7 - (int)threadIdx.x], 0.0f);
}
"""
CODE = DeviceCode(
    SOURCE,
    (Launch("twice", (3, 1, 1), (8, 1, 1), (2, 0)), Launch("back", (3, 1, 1), (8, 1, 1), (1, 2))),
    (96,),
)
PROBLEM = Problem(
    "tirgym://core-v0/relu?m=3&n=8&dtype=float32",
    (Tensor("x", (3, 8), "float32"), Tensor("out", (3, 8), "float32")),
    1,
    192,
    24,
)
KERNEL = PreparedKernel(
    PROBLEM,
    "sm_90",
    0,
    PROBLEM.workload,
    "nobody",
    {"apache-tvm": "0.27"},
    (PreparedProgram("unscheduled", (), CODE, b"\x00cubin\xff", None),),
)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in fake_cupy().items():
        monkeypatch.setitem(sys.modules, name, module)
    compiling._nvrtc.cache_clear()
    compiling._headers.cache_clear()


def program(**changes: Any) -> CudaProgram:
    return CudaProgram(PROBLEM, "sm_90", replace(CODE, **changes))


def test_a_file_holds_everything_and_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    path = KERNEL.save(tmp_path)
    assert path.name == "relu.prepared.json"
    assert PreparedKernel.load(path) == KERNEL
    first = path.read_bytes()
    assert PreparedKernel.load(path).save(tmp_path).read_bytes() == first
    assert prepared_files(tmp_path) == (path,)


def test_its_workload_is_judged_without_the_unscheduled_ir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirgym.kernels_suite.problem.build_of", None)
    workload = replace(PROBLEM, terms=7).stated()
    assert workload.uri == PROBLEM.workload
    assert tensors(workload)[1][0].name == "out"
    assert (terms_of(workload), bytes_of(workload)) == (7, 192)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[:-200], "not JSON"),
        (lambda text: text.replace('"sm_90"', '"sm_80"'), "digest"),
        (lambda text: text.replace("tirgym-prepared-1", "tirgym-prepared-9"), "format field"),
        (lambda text: "[]", "format field"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, damage: Any, words: str) -> None:
    path = KERNEL.save(tmp_path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(DamagedFileError, match=words) as raised:
        PreparedKernel.load(path)
    assert "relu.prepared.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_with_a_fitting_digest_and_other_content_is_refused(tmp_path: Path) -> None:
    from tirgym.harness.cuda.prepared import _digest

    path = KERNEL.save(tmp_path)
    content = json.loads(path.read_text())
    del content["digest"]
    content["programs"][0]["code"]["launches"][0]["arguments"] = [3, 0]
    path.write_text(json.dumps({**content, "digest": _digest(content)}))
    with pytest.raises(DamagedFileError, match="takes buffer 3 of 3"):
        PreparedKernel.load(path)


def test_programs_must_fit_and_have_one_to_compare_with() -> None:
    with pytest.raises(InvalidValueError, match="unscheduled first"):
        replace(KERNEL, programs=())
    bare = replace(KERNEL.programs[0], code=replace(CODE, launches=()))
    with pytest.raises(InvalidValueError, match="launches nothing"):
        replace(KERNEL, programs=(bare,))


def test_an_empty_folder_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"device_check\.prepare"):
        prepared_files(tmp_path)


@needs_compiler
@pytest.mark.usefixtures("cupy")
def test_cuda_c_is_compiled_launched_and_meets_at_barriers() -> None:
    driver, workspace = StandInDriver(), np.zeros(96, np.uint8)
    image = image_of(program(), "sm_90")
    kernels = CudaKernels(CODE, image, CudaDriver(driver), [workspace.ctypes.data])
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    out = np.zeros_like(x)
    for _ in range(2):
        kernels.launch((x.ctypes.data, out.ctypes.data), 0)
    assert np.array_equal(out, np.maximum(x, 0))
    assert driver.launches == 4


@needs_compiler
@pytest.mark.usefixtures("cupy")
def test_a_source_that_does_not_compile_keeps_the_compilers_words() -> None:
    with pytest.raises(CompileFailedError, match=r"no cubin: .*error: .*nonsense"):
        image_of(program(source="float y = nonsense;"), "sm_90")
    driver = CudaDriver(StandInDriver())
    other = program(launches=(replace(CODE.launches[0], kernel="gone"),))
    image = image_of(other, "sm_90")
    with pytest.raises(DeviceError, match="named symbol not found"):
        CudaKernels(other.code, image, driver, [0])
    with pytest.raises(DeviceError, match="image is invalid"):
        CudaKernels(CODE, b"no image", driver, [0])


def test_a_binary_is_taken_for_its_own_architecture_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    made = replace(program(), cubin=b"binary")
    assert image_of(made, "sm_90") == b"binary"
    with pytest.raises(
        BackendUnavailableError, match=r"only for sm_90, and this GPU is sm_80; .*CuPy"
    ):
        image_of(made, "sm_80")
    with pytest.raises(BackendUnavailableError, match="in no binary"):
        image_of(program(), "sm_90")
    assert made.code_key != program().code_key == CODE.code_key


def test_cupy_without_its_compiler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = fake_cupy()

    def missing() -> None:
        raise RuntimeError("Failure finding libnvrtc.so.13\nand more")

    modules["cupy.cuda.nvrtc"].getVersion = missing  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    compiling._nvrtc.cache_clear()
    said = compiling.why_no_nvrtc()
    compiling._nvrtc.cache_clear()
    assert said == (
        "CuPy finds no NVRTC (Failure finding libnvrtc.so.13): pip install nvidia-cuda-nvrtc"
    )
