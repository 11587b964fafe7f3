"""All of the CUDA device but the device: a driver in C that runs one kernel, torch on the CPU."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch_stand_in import BUS, torch_cuda

from tirgym.errors import BackendUnavailableError, DeviceError, InvalidValueError
from tirgym.harness.cuda import clocks
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.judge import Expected, judge
from tirgym.harness.status import Status
from tirgym.harness.triton.device import cuda
from tirgym.harness.triton.device.cuda import CudaDevice, open_cuda, why_no_cuda
from tirgym.harness.triton.device.device import Binary
from tirgym.harness.triton.device.entry import entry_parameters, entry_values
from tirgym.harness.triton.device.evaluator import DeviceEvaluator
from tirgym.harness.triton.device.vendor import NO_VENDOR, VENDOR
from tirgym.harness.triton.device.worker import DeviceDesk
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import (
    accumulator_of,
    make_inputs,
    reference_of,
    scale_of,
    tensors,
    terms_of,
)
from tirgym.kernels_suite.registry import load_kernel, load_workload
from tirgym.kernels_suite.triton.source import Argument, Launch
from tirgym.kernels_suite.triton.sources import SOURCES

torch = pytest.importorskip("torch", reason="memory and events are torch's")

DRIVER = r"""
#include <stdint.h>
#include <string.h>
static int shared_allowed = 48 << 10, launches, count;
static char modules[1024][32], names[1024][32];
static int known(void *module) { return (char *)module >= modules[0] && (char *)module < modules[count]; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorString(int code, const char **text) {
    if (code == 701) { *text = "too many resources requested for launch"; return 0; }
    if (code == 200) { *text = "device kernel image is invalid"; return 0; }
    return 1;
}
int cuModuleLoadData(void **module, const char *image) {
    if (memcmp(image, "\x7f" "ELF", 4)) return 200;
    if (count == 1024) return 2;
    strncpy(modules[count], image + 4, 31);
    *module = modules[count++];
    return 0;
}
int cuModuleUnload(void *module) { return known(module) ? 0 : 1; }
int cuModuleGetFunction(void **handle, void *module, const char *name) {
    if (!known(module)) return 1;
    strncpy(names[((char *)module - modules[0]) / 32], name, 31);
    *handle = module;
    return 0;
}
int cuFuncSetCacheConfig(void *handle, int config) { return config == 1 ? 0 : 1; }
int cuFuncSetAttribute(void *handle, int attribute, int value) {
    if (!known(handle) || attribute != 8) return 1;
    shared_allowed = value;
    return 0;
}
/* out = a + b, or out = a - b for an image called "wrong" */
int cuLaunchKernel(void *handle, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty,
                   unsigned tz, unsigned shared, void *stream, void **parameters, void **extra) {
    if (!known(handle) || extra || stream != (void *)7) return 1;
    if (strcmp(names[((char *)handle - modules[0]) / 32], "add")) return 1;
    if (tx % 32 || ty != 1 || tz != 1 || y != 1 || z != 1) return 1;
    if ((int)shared > shared_allowed || tx > 1024) return 701;
    float *a = *(float **)parameters[0], *b = *(float **)parameters[1];
    float *out = *(float **)parameters[2];
    int size = *(int32_t *)parameters[3];
    if (*(uint64_t *)parameters[4] || *(uint64_t *)parameters[5]) return 1;
    int end = (int)x * 1024 < size ? (int)x * 1024 : size;
    for (int i = 0; i < end; i++) out[i] = strcmp(handle, "wrong") ? a[i] + b[i] : a[i] - b[i];
    launches++;
    return 0;
}
int launch_count(void) { return launches; }
"""
PTX = """
.visible .entry add(
	.param .u64 .ptr .global .align 1 add_param_0,
	.param .u64 .ptr .global .align 1 add_param_1,
	.param .u64 .ptr .global .align 1 add_param_2,
	.param .u32 add_param_3,
	.param .u64 .ptr .global .align 1 add_param_4,
	.param .u64 .ptr .global .align 1 add_param_5
)
.reqntid 128
{
	ld.param.b32 %r24, [add_param_3];
	ld.param.b64 %rd1, [add_param_0];
}
"""
WORKLOAD = load_workload("triton-v0/add", {"m": 12, "n": 20})


def pointer(name: str) -> Argument:
    return Argument(f"{name}_ptr", "*fp32", name, True, 960)


LAUNCH = Launch(
    (
        pointer("a"),
        pointer("b"),
        pointer("out"),
        Argument("size", "i32", 240, True),
        Argument("BLOCK", "constexpr", 1024, False),
    ),
    (1, 1, 1),
    4,
    1,
)


def binary(**changes: Any) -> Binary:
    fields: dict[str, Any] = {
        "workload": WORKLOAD.uri,
        "launch": LAUNCH,
        "image": b"\x7fELFright",
        "name": "add",
        "shared_bytes": 0,
        "num_warps": 4,
        "texts": {"ptx": PTX},
    }
    return Binary(**{**fields, **changes})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("driver")
    source, made = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


class Event:
    """Each pair is 3 µs apart."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        pass

    def elapsed_time(self, _: Event) -> float:
        return 0.003


@pytest.fixture
def device(library: Path, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    for name, fake in torch_cuda(Event).items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(cuda, "sm_clock_mhz", lambda bus: 1500 if bus == BUS else None)
    return CudaDevice(CudaDriver.open(str(library)), place="cpu")


def test_facts_and_timer(device: CudaDevice) -> None:
    assert device.facts.arch == "sm_90"
    assert device.facts.driver == "CUDA 13.0"
    assert device.facts.versions["torch"] == torch.__version__
    assert device.clock_mhz() == 1500
    assert device.timer.startswith("cuda_events, L2 flushed")


def test_a_kernel_is_launched_gated_and_timed(device: CudaDevice, library: Path) -> None:
    evaluator = DeviceEvaluator(device, binary(), WORKLOAD, b"secret")
    status, report = evaluator.check(binary(), tuple(Regime))
    assert (status, report.failure) == (Status.PASSED, "")
    assert len(report.regimes) == 8
    found = evaluator.evaluate(binary(shared_bytes=50 << 10), (Regime.RAMP,), 0.0)
    assert found.passed
    assert found.measurement is not None
    assert found.measurement.latency_us == pytest.approx(3.0)
    assert found.measurement.speedup == pytest.approx(1.0)
    assert found.measurement.cache == "cold"
    assert "2 sets of buffers" in found.measurement.timer
    assert ctypes.CDLL(str(library)).launch_count() > 20


def test_what_is_wrong_refused_or_too_fast_has_no_time(device: CudaDevice) -> None:
    evaluator = DeviceEvaluator(device, binary(), WORKLOAD, b"secret")
    cases: Mapping[Status, tuple[Binary, float]] = {
        Status.WRONG_RESULT: (binary(image=b"\x7fELFwrong"), 0.0),
        Status.OUT_OF_MEMORY: (binary(num_warps=64), 0.0),
        Status.CRASH: (binary(image=b"no ELF"), 0.0),
        Status.SUSPECT: (binary(), 3.5),
    }
    for status, (candidate, floor_us) in cases.items():
        found = evaluator.evaluate(candidate, (Regime.RAMP,), floor_us)
        assert found.status is status, found.message
        assert found.measurement is None
    refused = evaluator.evaluate(binary(image=b"no ELF"), (Regime.RAMP,), 0.0)
    assert refused.message == "cuModuleLoadData: device kernel image is invalid (error 200)"


def test_a_kernel_that_breaks_the_context_ends_the_process(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, ramp = DeviceDesk(device, b"secret"), (Regime.RAMP,)
    desk.answer("check", (binary(), binary(), ramp))
    refused = desk.answer("evaluate", (binary(), binary(num_warps=64), ramp, 0.0))
    assert refused.status is Status.OUT_OF_MEMORY

    def launch(*_: Any) -> None:
        raise DeviceError("cuLaunchKernel", 700, "an illegal memory access was encountered")

    def synchronize() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(device, "launch", launch)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    for method, more in (("evaluate", (0.0,)), ("check", ())):
        with pytest.raises(RuntimeError, match="illegal memory access"):
            desk.answer(method, (binary(), binary(), ramp, *more))


@pytest.mark.parametrize(("room_bytes", "kept"), [(1 << 30, True), (0, False)])
def test_workloads_are_kept_while_there_is_room(
    device: CudaDevice, room_bytes: int, kept: bool
) -> None:
    other = load_workload("triton-v0/add", {"m": 6, "n": 40})
    desk = DeviceDesk(device, b"secret", room_bytes)
    regimes = (Regime.RAMP,)
    assert desk.check(binary(), binary(), regimes)[0] is Status.PASSED
    first = desk._of(binary())
    assert (
        desk.check(binary(workload=other.uri), binary(workload=other.uri), regimes)[0] == "passed"
    )
    assert (desk._of(binary()) is first) is kept


def test_timed_calls_that_change_an_input_are_caught_and_the_inputs_renewed(
    device: CudaDevice,
) -> None:
    evaluator = DeviceEvaluator(device, binary(), WORKLOAD, b"secret")
    assert evaluator.evaluate(binary(), (Regime.RAMP,), 0.0).passed
    place = evaluator._sides[0][1].places[0]
    device.tensor(place)[3, 4] = 77.0
    found = evaluator.evaluate(binary(), (Regime.RAMP,), 0.0)
    assert found.message == "timed calls: a: an input was changed"
    assert evaluator.evaluate(binary(), (Regime.RAMP,), 0.0).passed


def test_the_vendor_is_timed_on_tensors_and_judged(device: CudaDevice) -> None:
    evaluator = DeviceEvaluator(device, binary(), WORKLOAD, b"secret")
    found = evaluator.against_vendor(binary())
    assert found is not None
    assert found.ratio == pytest.approx(1.0)
    assert found.deviation == ""
    assert evaluator.compare(binary(), binary(), (Regime.RAMP,)).same_code
    other = evaluator.compare(binary(), binary(image=b"\x7fELFother"), (Regime.RAMP,))
    assert other.ratio == pytest.approx(1.0)
    assert not other.same_code
    wrong = evaluator.compare(binary(), binary(image=b"\x7fELFwrong"), (Regime.RAMP,))
    assert wrong.ratio is None
    assert wrong.message.startswith("ramp: out[")
    copy = device.copier(64)
    assert torch.equal(copy(), copy())


def test_a_driver_says_what_it_refuses(library: Path) -> None:
    driver = CudaDriver.open(str(library))
    function = driver.load(b"\x7fELFright", "add", 0)
    with pytest.raises(DeviceError, match=r"cuLaunchKernel: unknown error \(error 1\)"):
        driver.launch(function, (1, 1, 1), (33, 1, 1), 7, [])
    driver.unload(function)
    with pytest.raises(BackendUnavailableError, match="no NVIDIA driver"):
        CudaDriver.open("libof-nowhere.so.1")


def test_entry_parameters_are_read_from_ptx_and_compared_with_the_launch() -> None:
    parameters = entry_parameters(PTX, "add")
    assert parameters == tuple((f"add_param_{n}", 32 if n == 3 else 64) for n in range(6))
    values = entry_values(LAUNCH, {"a": 256, "b": 512, "out": 768}, parameters, PTX)
    assert [value.value for value in values] == [256, 512, 768, 240, 0, 0]
    places = {"a": 0, "b": 0, "out": 0}
    with pytest.raises(InvalidValueError, match="add_param_3 of the binary: '64 bits'"):
        entry_values(LAUNCH, places, tuple((name, 64) for name, _ in parameters), PTX)
    with pytest.raises(InvalidValueError, match="4 for the launch, then pointers"):
        entry_values(LAUNCH, places, parameters[:3], PTX)
    with pytest.raises(InvalidValueError, match="add_param_4 is read"):
        entry_values(LAUNCH, places, parameters, PTX + "ld.param.b64 %rd9, [add_param_4];")
    with pytest.raises(InvalidValueError, match="the function gone"):
        entry_parameters(PTX, "gone")


# torch itself warns that half-precision CPU kernels of one operator are slow on some machines
@pytest.mark.parametrize("kernel", VENDOR)
def test_the_vendors_kernel_means_the_same(kernel: str) -> None:
    found = load_kernel(f"triton-v0/{kernel}")
    shape = dict(found.tiny_shape)
    if kernel == "int8_gemm":  # torch wants multiples of 8
        shape = {"m": 32, "n": 16, "k": 24}
    workload = Workload.of(found, shape)
    inputs = make_inputs(workload, np.random.default_rng(0), Regime.NORMAL)
    (output,) = tensors(workload)[1]
    out = np.zeros(output.shape, output.dtype)
    got = VENDOR[kernel](*map(torch.from_numpy, (*inputs, out)))().numpy()
    (reference,) = reference_of(workload, inputs)
    (scale,) = scale_of(workload, inputs) or (None,)
    terms, accumulator = terms_of(workload), accumulator_of(workload)
    expected = Expected.of(output.name, reference, got, terms, scale, accumulator)
    assert judge(got, expected).failure == ""
    if reference.dtype == np.float64:  # its own error is not the measure here
        assert np.abs(got - reference).max() <= 1e-2 * max(1.0, np.abs(reference).max())


def test_every_kernel_has_a_vendor_or_a_reason() -> None:
    assert set(VENDOR) | set(NO_VENDOR) == set(SOURCES)
    assert not set(VENDOR) & set(NO_VENDOR)


def _says(monkeypatch: pytest.MonkeyPatch, **found: Any) -> str | None:
    monkeypatch.setattr(cuda, "cuda_capability", lambda: found.get("arch", "sm_90"))
    monkeypatch.setattr(
        cuda, "find_spec", lambda name: None if name in found.get("absent", ()) else 1
    )
    monkeypatch.setattr(torch.version, "cuda", found.get("cuda", "13.0"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found.get("available", True))
    return why_no_cuda()


def test_each_reason_to_have_no_device_is_one_line_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _says(monkeypatch) is None
    wanted: list[tuple[dict[str, Any], str]] = [
        ({"arch": None}, "no NVIDIA GPU"),
        ({"arch": "sm_75"}, "this GPU is sm_75; kernels are compiled for sm_80, sm_90, sm_100"),
        ({"absent": ("torch", "triton")}, "torch and triton not installed: pip install"),
        ({"cuda": None}, "built without CUDA: install torch's CUDA build"),
        ({"available": False}, "its driver is older than torch's CUDA; update the driver"),
    ]
    for found, words in wanted:
        said = _says(monkeypatch, **found)
        assert said is not None
        assert words in said
        assert "\n" not in said
    with pytest.raises(BackendUnavailableError, match="update the driver"):
        open_cuda()


def test_the_clock_is_asked_of_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def failing() -> None:
        raise NVMLError

    library: dict[str, Callable[..., Any] | type] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda bus: {b"0": "first"}[bus],
        "nvmlDeviceGetClockInfo": lambda handle, kind: {("first", 1): 1710}[handle, kind],
        "NVMLError": NVMLError,
    }
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**library))
    assert clocks.sm_clock_mhz("0") == 1710
    answer = SimpleNamespace(stdout="1980\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**{**library, "nvmlInit": failing}))
    assert clocks.sm_clock_mhz("0") == 1980
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert clocks.sm_clock_mhz("0") == 1980
    answer.stdout = "[N/A]"
    assert clocks.sm_clock_mhz("0") is None


def test_the_autotuner_gets_the_configurations_and_its_choice_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    triton = pytest.importorskip("triton", reason="needs triton: pip install 'tirgym[triton]'")
    from tirgym.harness.triton.device.autotuner import autotuned
    from tirgym.kernels_suite.triton.sources import triton_source

    source = triton_source(WORKLOAD.kernel)
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(source.function, "run", lambda **given: calls.append(given), raising=False)

    def benchmark(call: Callable[[], Any], quantiles: Any) -> list[float]:
        call()
        if calls[-1]["num_warps"] == 8:
            raise triton.runtime.errors.OutOfResources(300, 200, "shared memory")
        return [1.0 / calls[-1]["BLOCK"]] * 3

    configs = [
        {"BLOCK": 256, "num_warps": 4, "num_stages": 1},
        {"BLOCK": 1024, "num_warps": 2, "num_stages": 1},
        {"BLOCK": 4096, "num_warps": 8, "num_stages": 1},
    ]
    tensors_by_name = {name: torch.zeros(12, 20) for name in ("a", "b", "out")}
    shape = {"m": 12, "n": 20}
    found = autotuned(source, shape, LAUNCH, configs, tensors_by_name, benchmark)
    assert found.config == configs[1]
    assert found.times_us == pytest.approx((1e3 / 256, 1e3 / 1024, math.inf))
    last = calls[-1]
    assert last["out_ptr"] is tensors_by_name["out"]
    assert (last["size"], last["BLOCK"], last["num_warps"]) == (240, 1024, 2)
    assert last["grid"](last) == (1,)
