"""`CudaDevice`: an NVIDIA GPU: torch's memory and events, the driver's launches."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Protocol

from tirgym.errors import BackendUnavailableError
from tirgym.harness.cuda.capability import cuda_capability
from tirgym.harness.cuda.clocks import sm_clock_mhz
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.cuda.kernels import CudaKernels, image_of
from tirgym.harness.cuda.program import CudaProgram
from tirgym.harness.triton.device.autotuner import autotuned
from tirgym.harness.triton.device.device import Binary, DeviceFacts, Place, Runnable, Tuned
from tirgym.harness.triton.device.entry import entry_parameters, entry_values
from tirgym.harness.triton.device.vendor import VENDOR
from tirgym.harness.triton.gpus import GPUS
from tirgym.kernels_suite.kernel import Array
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.triton.source import Config, TritonSource

__all__ = ["CudaDevice", "open_cuda", "why_no_cuda"]

_FLUSH_SHARE = 2
"""the buffer that empties the L2 cache, in sizes of that cache"""
_HEAD_START_S = 25e-6
"""for each timed call: how long the device waits first, so that it never waits for the host"""
_MAX_CALLS = 200
"""in one sample: the queue of launches holds about a thousand"""
_PACKAGES = ("torch", "triton", "numpy", "cupy-cuda13x", "cupy-cuda12x")


def why_no_cuda() -> str | None:
    """One line with a remedy, or None where kernels can run; makes no context on the device."""
    arch = cuda_capability()
    if arch is None:
        return (
            "no NVIDIA GPU: the driver's library (libcuda.so.1) is missing or finds no device; run this "
            "on a machine with a GPU and its driver"
        )
    if arch not in GPUS:
        known = ", ".join(name for name in GPUS if name.startswith("sm_"))
        return f"this GPU is {arch}; kernels are compiled for {known}"
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed: pip install torch triton"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install torch's CUDA build"
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} (CUDA {torch.version.cuda}) cannot use this GPU: its driver is "
            "older than torch's CUDA; update the driver or install a torch for an older CUDA"
        )
    return None


def open_cuda() -> CudaDevice:
    """The first GPU; raises BackendUnavailableError, which says why there is none."""
    problem = why_no_cuda()
    if problem is not None:
        raise BackendUnavailableError(problem)
    return CudaDevice(CudaDriver.open())


class CudaDevice:
    """The GPU that torch calls current. Launches go to torch's stream."""

    def __init__(self, driver: CudaDriver, place: str = "cuda") -> None:
        """`place` is torch's name of the device; another one serves tests of all but the device."""
        import torch

        self._torch, self.driver, self._place = torch, driver, place
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        torch.empty(1, device=place)  # makes the context that the driver's calls work in
        self._bus = _bus_id(properties)
        self.facts = DeviceFacts(
            product=properties.name,
            arch=f"sm_{properties.major}{properties.minor}",
            compute_units=properties.multi_processor_count,
            memory_bytes=properties.total_memory,
            l2_bytes=properties.L2_cache_size,
            driver=f"CUDA {driver.version()}",
            versions=_versions(torch),
        )
        self._clock_mhz = max(1000, self.clock_mhz() or 0)
        self._flush = torch.empty(
            _FLUSH_SHARE * properties.L2_cache_size, dtype=torch.uint8, device=place
        )

    @property
    def timer(self) -> str:
        """Events around each call."""
        return (
            f"cuda_events, L2 flushed by writing {self._flush.numel() >> 20} MiB before each call"
        )

    def allocate(self, nbytes: int) -> Any:
        """A tensor of bytes; torch aligns to 512."""
        return self._torch.empty(nbytes, dtype=self._torch.uint8, device=self._place)

    def upload(self, memory: Any, content: Array) -> None:
        """From the host; content must be writable, as torch asks."""
        memory[: content.nbytes].copy_(self._torch.from_numpy(content))

    def download(self, memory: Any, into: Array) -> None:
        """To the host; waits."""
        self._torch.from_numpy(into).copy_(memory[: into.nbytes])

    def tensor(self, place: Place) -> Any:
        """A view of the memory."""
        shape, nbytes = place.tensor.shape, place.tensor.nbytes
        body = place.memory[place.offset : place.offset + nbytes]
        return body.view(getattr(self._torch, place.tensor.dtype)).reshape(shape)

    def load(self, binary: Runnable) -> _Launcher:
        """Into the current context."""
        if isinstance(binary, CudaProgram):
            return _ProgramLauncher(binary, self)
        assert isinstance(binary, Binary)
        return _TritonLauncher(binary, self.driver)

    def launch(self, loaded: _Launcher, places: Mapping[str, Place]) -> None:
        """On torch's current stream."""
        addresses = {n: p.memory.data_ptr() + p.offset for n, p in places.items()}
        loaded.launch(addresses, self._torch.cuda.current_stream().cuda_stream)

    def synchronize(self) -> None:
        """Raises RuntimeError for what a launch before did wrong."""
        self._torch.cuda.synchronize()

    def elapsed_s(self, call: Callable[[], Any], calls: int) -> float:
        """Events around each call, the cache flushed before it, outside of the events."""
        cuda = self._torch.cuda
        calls = min(calls, _MAX_CALLS)
        events = [
            (cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(calls)
        ]
        cuda._sleep(int(_HEAD_START_S * calls * 1e6 * self._clock_mhz))
        for begin, end in events:
            self._flush.zero_()
            begin.record()
            call()
            end.record()
        cuda.synchronize()
        return float(sum(begin.elapsed_time(end) for begin, end in events)) * 1e-3 / calls

    def copier(self, nbytes: int) -> Callable[[], Any]:
        """torch's copy, which is the driver's."""
        source, there = self.allocate(nbytes), self.allocate(nbytes)
        source.random_(0, 256)
        return lambda: there.copy_(source)

    def vendor(self, kernel: str) -> Callable[..., Callable[[], Any]] | None:
        """torch's."""
        return VENDOR.get(kernel)

    def keep(self, result: Any, place: Place) -> None:
        """A copy on the device."""
        there = self.tensor(place)
        if result.data_ptr() != there.data_ptr():
            there.copy_(result)

    def autotune(
        self, source: TritonSource, binary: Binary, configs: Sequence[Config], tensors: list[Any]
    ) -> Tuned:
        """By Triton's driver and clock."""
        from tirgym.kernels_suite.problem import tensors as tensors_of

        workload = load_workload(binary.workload)
        names = [tensor.name for group in tensors_of(workload) for tensor in group]
        named = dict(zip(names, tensors, strict=True))
        return autotuned(source, workload.shape, binary.launch, configs, named)

    def clock_mhz(self) -> int | None:
        """Of the multiprocessors."""
        return sm_clock_mhz(self._bus)


class _Launcher(Protocol):
    def launch(self, addresses: Mapping[str, int], stream: int) -> None:
        """Start on tensors by name, in the order of the workload's parameters."""


class _TritonLauncher:
    """A Triton kernel, with argument values by addresses."""

    def __init__(self, binary: Binary, driver: CudaDriver) -> None:
        self._binary, self._driver = binary, driver
        self._parameters = entry_parameters(binary.texts["ptx"], binary.name)
        self._function = driver.load(binary.image, binary.name, binary.shared_bytes)
        self._values: dict[tuple[int, ...], list[Any]] = {}

    def launch(self, addresses: Mapping[str, int], stream: int) -> None:
        """Start its one kernel."""
        key, launch = tuple(addresses.values()), self._binary.launch
        if key not in self._values:
            ptx = self._binary.texts["ptx"]
            self._values[key] = entry_values(launch, addresses, self._parameters, ptx)
        block = (32 * self._binary.num_warps, 1, 1)
        self._driver.launch(self._function, launch.grid, block, stream, self._values[key])


class _ProgramLauncher:
    """TVM's kernels, with their workspaces in torch's memory."""

    def __init__(self, program: CudaProgram, device: CudaDevice) -> None:
        image = image_of(program, device.facts.arch)
        self._kept = [device.allocate(max(1, nbytes)) for nbytes in program.code.workspaces]
        addresses = [int(memory.data_ptr()) for memory in self._kept]
        self._kernels = CudaKernels(program.code, image, device.driver, addresses)

    def launch(self, addresses: Mapping[str, int], stream: int) -> None:
        """Start all of its kernels."""
        self._kernels.launch(tuple(addresses.values()), stream)


def _bus_id(properties: Any) -> str:
    """As nvidia-smi -i takes it; the first device where torch does not tell."""
    if not hasattr(properties, "pci_bus_id"):
        return "0"
    return f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def _versions(torch: Any) -> dict[str, str]:
    found = {"python": platform.python_version(), "torch's CUDA": str(torch.version.cuda)}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
