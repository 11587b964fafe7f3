"""A GPU for tests: CUDA C built by g++ and run on the CPU, behind the names of CuPy and the driver.

Threads of a block take turns between their barriers and shuffles, so shared memory and cross-thread
sums mean what they mean on a GPU; blocks run one after the other. CuPy's NVRTC is g++ here.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pytest
from torch_stand_in import BUS, torch_cuda

from tirgym.harness.cuda import compiling
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.triton.device import cuda, evaluator
from tirgym.harness.triton.device.cuda import CudaDevice

__all__ = ["StandInDriver", "fake_cupy", "needs_compiler", "open_device"]

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or sys.platform != "linux", reason="needs g++"
)
_IMAGE = b"stand-in:"

SHIM = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define alignas(n) __attribute__((aligned(n)))
#define __align__(n) __attribute__((aligned(n)))
struct dim3_ { unsigned x, y, z; };
static dim3_ blockIdx, threadIdx, blockDim_;
struct float2 { float x, y; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct float4 { float x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float max(float a, float b) { return a > b ? a : b; }
static inline float min(float a, float b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define __expf expf
static inline unsigned __activemask() { return 0xffffffffu; }

enum { RUNS, WAITS, DONE };
struct Fiber { ucontext_t at; int state; dim3_ index; char *stack; };
static Fiber fibers[1024];
static ucontext_t home;
static int now, threads;
static float lanes[1024];
static void *entry, *values[16];
static void yield_(int state) {
    fibers[now].state = state;
    swapcontext(&fibers[now].at, &home);
}
static inline void __syncthreads() { yield_(WAITS); }
static inline float __shfl_down_sync(unsigned, float value, int delta, int width) {
    lanes[now] = value;
    yield_(RUNS);
    int lane = now % width, from = lane + delta < width && now + delta < threads ? now + delta : now;
    float got = lanes[from];
    yield_(RUNS);
    return got;
}
static inline float __shfl_sync(unsigned, float value, int source, int width) {
    lanes[now] = value;
    yield_(RUNS);
    float got = lanes[now / width * width + source];
    yield_(RUNS);
    return got;
}
typedef void (*Kernel)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
static void call() {
    void **v = values;
    ((Kernel)entry)(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]);
}
static void fiber() {
    call();
    fibers[now].state = DONE;
    swapcontext(&fibers[now].at, &home);
}
static void one_block() {
    for (int n = 0; n < threads; n++) {
        Fiber &f = fibers[n];
        if (!f.stack) f.stack = (char *)malloc(1 << 16);
        getcontext(&f.at);
        f.at.uc_stack.ss_sp = f.stack;
        f.at.uc_stack.ss_size = 1 << 16;
        f.at.uc_link = 0;
        f.state = RUNS;
        unsigned x = blockDim_.x, y = blockDim_.y;
        f.index = {n % x, n / x % y, n / (x * y)};
        makecontext(&f.at, fiber, 0);
    }
    for (bool live = true; live;) {
        bool ran = false;
        live = false;
        for (now = 0; now < threads; now++) {
            if (fibers[now].state != RUNS) { live |= fibers[now].state == WAITS; continue; }
            threadIdx = fibers[now].index;
            swapcontext(&home, &fibers[now].at);
            ran = live = true;
        }
        if (!ran)
            for (int n = 0; n < threads; n++)
                if (fibers[n].state == WAITS) fibers[n].state = RUNS;
    }
}
extern "C" int emulate(void *kernel, const unsigned *grid, const unsigned *block, int count,
                       void **parameters, int meet) {
    entry = kernel;
    for (int i = 0; i < count; i++) values[i] = *(void **)parameters[i];
    blockDim_ = {block[0], block[1], block[2]};
    threads = block[0] * block[1] * block[2];
    if (threads > 1024) return 701;
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++) {
                if (meet) { one_block(); continue; }
                for (threadIdx.z = 0; threadIdx.z < block[2]; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < block[1]; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++) call();
            }
    return 0;
}
"""


class NVRTCError(RuntimeError):
    """As CuPy's."""


class _FakeNvrtc(ModuleType):
    """g++ in the place of NVRTC; an "image" is the path of what it built."""

    NVRTCError = NVRTCError

    def __init__(self) -> None:
        super().__init__("cupy.cuda.nvrtc")
        self._folder = Path(tempfile.mkdtemp(prefix="tirgym-stand-in-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        (self._folder / "cuda.h").touch()
        (self._folder / "shim.h").write_text(SHIM)
        self._programs: dict[int, list[Any]] = {}

    def getVersion(self) -> tuple[int, int]:
        return 13, 0

    def createProgram(self, source: str, name: str, headers: Any, includes: Any) -> int:
        number = len(self._programs)
        self._programs[number] = [source, "", b""]
        return number

    def compileProgram(self, program: int, options: tuple[str, ...]) -> None:
        assert options[0].startswith("--gpu-architecture=sm_")
        source, text = self._programs[program][0], self._folder / f"kernels{program}.cpp"
        text.write_text(source)
        made = text.with_suffix(".so")
        command = ["g++", "-O1", "-w", "-shared", "-fPIC", f"-I{self._folder}"]
        command += ["-include", "shim.h", str(text), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self._programs[program][1:] = [done.stderr, _IMAGE + str(made).encode()]
        if done.returncode:
            raise NVRTCError("NVRTC_ERROR_COMPILATION (6)")

    def getCUBIN(self, program: int) -> bytes:
        return self._programs[program][2]  # type: ignore[no-any-return]

    def getProgramLog(self, program: int) -> str:
        return self._programs[program][1]  # type: ignore[no-any-return]

    def destroyProgram(self, program: int) -> None:
        pass


class _Memory:
    """CuPy's MemoryPointer."""

    def __init__(self, nbytes: int) -> None:
        self._content = np.zeros(nbytes, np.uint8)
        self.ptr = int(self._content.ctypes.data)
        self.flushes = 0

    def copy_from_host(self, address: int, nbytes: int) -> None:
        ctypes.memmove(self.ptr, address, nbytes)

    def copy_to_host(self, address: int, nbytes: int) -> None:
        ctypes.memmove(address, self.ptr, nbytes)

    def memset_async(self, value: int, nbytes: int) -> None:
        assert nbytes == self._content.nbytes
        self.flushes += 1


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


class LaunchClock(Protocol):
    """What events read: the time that launches took so far."""

    @property
    def clock_us(self) -> float:
        """Since the start of the process."""


def fake_cupy(driver: LaunchClock | None = None) -> dict[str, ModuleType]:
    """Modules for `sys.modules`; without a `driver` only its NVRTC."""
    package, part, nvrtc = ModuleType("cupy"), ModuleType("cupy.cuda"), _FakeNvrtc()
    package.__spec__ = ModuleSpec("cupy", None, origin="nowhere/cupy/__init__.py")
    package.cuda, part.nvrtc = part, nvrtc  # type: ignore[attr-defined]
    if driver is not None:
        _Event.driver = driver
        fakes: dict[str, Any] = {
            "alloc": _Memory,
            "Event": _Event,
            "get_elapsed_time": lambda begin, end: begin.elapsed_time(end),
            "runtime": SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                getDevice=lambda: 0,
                getDeviceProperties=lambda _: {"l2CacheSize": 1 << 12},
                deviceGetPCIBusId=lambda _: BUS,
                deviceSynchronize=lambda: None,
            ),
        }
        for name, fake in fakes.items():
            setattr(part, name, fake)
    return {"cupy": package, "cupy.cuda": part, "cupy.cuda.nvrtc": nvrtc}


class StandInDriver:
    """The functions of libcuda that `CudaDriver` calls, with ctypes arguments as there."""

    def __init__(self) -> None:
        self._modules: list[tuple[ctypes.CDLL, bool]] = []
        self._functions: list[tuple[ctypes.CDLL, Any, bool]] = []
        self.launches, self.clock_us = 0, 0.0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13000
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        known = {200: b"device kernel image is invalid", 500: b"named symbol not found"}
        text._obj.value = known.get(code, b"some error")
        return 0

    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        content = image.value
        if not content.startswith(_IMAGE):
            return 200
        path = Path(content[len(_IMAGE) :].decode())
        source = path.with_suffix(".cpp").read_text()
        meets = "__syncthreads" in source or "__shfl" in source
        self._modules.append((ctypes.CDLL(str(path)), meets))
        module._obj.value = len(self._modules)
        return 0

    def cuModuleGetFunction(self, handle: Any, module: Any, name: bytes) -> int:
        library, meets = self._modules[module.value - 1]
        try:
            function = getattr(library, name.decode())
        except AttributeError:
            return 500
        self._functions.append((library, function, meets))
        handle._obj.value = len(self._functions)
        return 0

    def cuModuleUnload(self, module: Any) -> int:
        return 0

    def cuLaunchKernel(self, handle: Any, *rest: Any) -> int:
        *sizes, _, _, pointers, _ = rest
        library, function, meets = self._functions[handle.value - 1]
        grid, block = ((ctypes.c_uint * 3)(*(n.value for n in s)) for s in (sizes[:3], sizes[3:]))
        self.launches += 1
        self.clock_us += 500.0 + 0.01 * math.prod((*grid, *block))
        return library.emulate(function, grid, block, len(pointers), pointers, meets)  # type: ignore[no-any-return]


class _Event:
    """A clock of launches, so that times are the same on a busy machine: 500 µs for each, and 10 ns for
    each of its threads; 600 µs for what launches nothing, as torch on the CPU."""

    driver: LaunchClock

    def __init__(self, enable_timing: bool = True) -> None:
        self._at = 0.0

    def record(self) -> None:
        self._at = self.driver.clock_us

    def elapsed_time(self, end: _Event) -> float:
        return 1e-3 * (end._at - self._at or 600.0)


def open_device() -> CudaDevice:
    """For good: in a process of its own, or under a fixture that puts torch and CuPy back."""
    import torch

    for name, fake in torch_cuda(_Event).items():
        setattr(torch.cuda, name, fake)
    setattr(cuda, "sm_clock_mhz", lambda bus: 1500)  # noqa: B010 - mypy knows the function
    sys.modules.update(fake_cupy())
    compiling._nvrtc.cache_clear()
    compiling._headers.cache_clear()
    evaluator.SLOW_FLOOR_S = 60.0  # barriers take long here
    _Event.driver = StandInDriver()
    return CudaDevice(CudaDriver(_Event.driver), place="cpu")
