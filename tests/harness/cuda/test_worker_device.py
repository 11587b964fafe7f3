"""Backend `cuda` measured: gate and clock on the stand-in, whose CuPy and driver run CUDA C on the CPU."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cuda_stand_in import CUDARuntimeError, StandInDriver, fake_cupy, needs_compiler
from device_programs import matmul, shared_matmul

from tirgym.errors import BackendUnavailableError, InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.backends import cuda as cuda_backend
from tirgym.harness.backends.tvm_device import TVMDeviceBackend
from tirgym.harness.buffers import Poison
from tirgym.harness.cuda import compiling
from tirgym.harness.cuda import session as sessions
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.cuda.worker_device import ROTATION, CudaBuffer, EventTimer, LoadedKernels
from tirgym.harness.evaluation import Level
from tirgym.harness.gate import check
from tirgym.harness.mutants import mutate
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.tensorir.completion import completed
from tirgym.harness.tensorir.handles import new_schedule
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.timing import Call, TimingPlan
from tirgym.harness.vendor import measure_here
from tirgym.harness.workbench import Rules, Workbench
from tirgym.kernels_suite.kernel import Regime

TARGET = Target("cuda", "sm_90")
_QUICK = TimingPlan(1e-4, 0.01, 5, 10, noise_limit=1e9, extensions=0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandInDriver:
    driver = StandInDriver()
    for name, module in fake_cupy(driver).items():
        monkeypatch.setitem(sys.modules, name, module)
    for cached in (compiling._nvrtc, compiling._headers, sessions.session):
        cached.cache_clear()
    monkeypatch.setattr(sessions, "cuda_capability", lambda: "sm_90")
    monkeypatch.setattr(CudaDriver, "open", classmethod(lambda cls: cls(driver)))
    return driver


def compiler() -> TVMDeviceBackend:
    found = backend("cuda")
    assert isinstance(found, TVMDeviceBackend)
    return found


def bench_of(program: TensorIRProgram) -> Workbench:
    plans = dict.fromkeys(Level, _QUICK)
    rules = Rules(b"secret", 0, plans, None, "", slowdown_limit=1e9, slow_floor_s=1e9)
    naive = compiler().module_json(compiler().start(program.workload, TARGET))
    return Workbench(program.workload, naive, TARGET, rules)


@needs_compiler
@pytest.mark.usefixtures("gpu")
def test_right_programs_pass_and_wrong_ones_are_caught() -> None:
    tiled = shared_matmul(TARGET, 16, 8)
    bench = bench_of(tiled)
    sets = [bench.draw(regime, "test") for regime in (Regime.RAMP, Regime.NORMAL)]

    def verdict(program: TensorIRProgram) -> tuple[Status, str]:
        build = compiler().build(compiler().module_json(program), TARGET)
        outcome, _ = bench.gate(build.load(), sets)
        return outcome.status, outcome.message

    assert verdict(tiled) == (Status.PASSED, "")
    mod = mutate("constant_output", matmul(TARGET, 16).mod)
    broken = TensorIRProgram(tiled.workload, TARGET, (), new_schedule(mod))
    assert verdict(broken)[0] is Status.WRONG_RESULT

    code = compiler().code(completed(matmul(TARGET, 16)), TARGET)
    beside = replace(code, source=code.source.replace("c_ptr[", "c_ptr[-1 + "))
    outcome, _ = bench.gate(LoadedKernels(beside, sessions.session(TARGET)), sets)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.message.startswith("ramp: c: written")


@needs_compiler
def test_calls_are_timed_by_events_with_a_cold_cache(gpu: StandInDriver) -> None:
    program = matmul(TARGET, 8)
    bench = bench_of(program)
    assert isinstance(bench.timer, EventTimer)
    assert bench.timer.name == "cuda_events_2_buffers_cold"
    there = sessions.session(TARGET)
    flushes, launches = there._flush.flushes, gpu.launches
    call = Call(bench.naive.function, bench.bench.arguments())
    assert bench.timer.time(call, 3) == pytest.approx(500.64e-6)
    assert there._flush.flushes - flushes == 6
    assert gpu.launches - launches == 3
    assert there._flush_bytes == 2 << 12


@needs_compiler
@pytest.mark.usefixtures("gpu")
def test_timed_calls_take_the_buffers_in_turn_and_each_is_judged() -> None:
    bench = bench_of(matmul(TARGET, 8))
    call = Call(bench.naive.function, bench.bench.arguments())
    given = bench.draw(Regime.NORMAL, "test")
    bench.bench.prepare(given, Poison.HIGH)
    bench.timer.time(call, ROTATION)
    bench.bench.fetch()
    assert check(bench.bench, given)[0] == ""
    (output,) = bench.bench.outputs
    assert isinstance(output, CudaBuffer)
    second = output.device.addresses[1]
    bench.bench.prepare(given, Poison.HIGH)
    bench.timer.time(call, 1)  # whichever set's turn it is: the other one is not judged
    bench.bench.fetch()
    assert check(bench.bench, given)[0] == ""
    bench.timer.time(call, 1)
    bench.bench.prepare(given, Poison.HIGH)
    call.function(*call.arguments)  # as the gate calls: on the first alone
    ctypes.memset(second, 0x55, 4)
    bench.bench.fetch()
    assert check(bench.bench, given)[0] == ""


@needs_compiler
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("wrong", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize(
    ("at", "words"), [(0, "c[0, 0]"), (-4, "c: written 1 bytes before its start")]
)
def test_what_is_wrong_in_any_set_of_buffers_is_found(
    at: int, words: str, wrong: tuple[int, ...]
) -> None:
    bench = bench_of(matmul(TARGET, 8))
    call = Call(bench.naive.function, bench.bench.arguments())
    given = bench.draw(Regime.NORMAL, "test")
    (output,) = bench.bench.outputs
    assert isinstance(output, CudaBuffer)
    bench.bench.run(bench.naive.function, given, Poison.NAN)
    first = bench.bench.bits()
    bench.bench.prepare(given, Poison.HIGH)
    bench.timer.time(call, ROTATION)
    assert bench.bench.same_bits_everywhere(first)
    for place in wrong:
        ctypes.memset(output.device.addresses[place] + at, 0x55, 4)
    bench.bench.fetch()
    assert words in check(bench.bench, given)[0]
    assert bench.bench.tainted is (at < 0)
    assert bench.bench.same_bits_everywhere(first) is (at < 0)


@needs_compiler
@pytest.mark.usefixtures("gpu")
def test_a_torch_without_a_gpu_is_no_vendor_and_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this torch has a GPU")
    found = measure_here(matmul(TARGET, 8).workload, TARGET, "torch")
    assert (found.status, found.speedup) == (Status.INCOMPLETE, None)
    assert found.message == "this torch sees no GPU: install torch's CUDA build"


@pytest.mark.usefixtures("gpu")
def test_a_kernel_that_breaks_the_context_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")

    there = sessions.session(TARGET)
    ended: list[int] = []
    runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, deviceSynchronize=broken)
    monkeypatch.setattr(there._cuda, "runtime", runtime)
    monkeypatch.setattr(os, "_exit", ended.append)
    there.wait()
    assert ended == [1]
    assert "illegal memory access" in capfd.readouterr().err


def test_each_reason_not_to_run_is_one_line(
    gpu: StandInDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = backend("cuda")
    assert found.why_cannot_run(TARGET) is None
    assert found.describe(TARGET)["versions"]["nvrtc"] == "nvrtc_13.0"
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    for capability, words in (
        (None, "no NVIDIA GPU"),
        ("sm_80", "this machine's GPU is sm_80"),
        ("sm_90", "pip install 'tirgym[cuda13]'"),
    ):
        monkeypatch.setattr(sessions, "cuda_capability", lambda c=capability: c)
        said = found.why_cannot_run(TARGET)
        assert said is not None
        assert words in said
        assert "\n" not in said
        with pytest.raises(BackendUnavailableError, match="no GPU for cuda/sm_90"):
            sessions.Session(TARGET)


def test_the_gpu_of_this_machine_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_backend, "cuda_capability", lambda: "sm_90")
    assert backend("cuda").target() == TARGET
    monkeypatch.setattr(cuda_backend, "cuda_capability", lambda: "sm_75")
    with pytest.raises(BackendUnavailableError, match="--arch: sm_80"):
        backend("cuda").target()
    with pytest.raises(InvalidValueError, match="num_threads"):
        backend("cuda").target("sm_90", 2)
