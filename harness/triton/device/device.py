"""`Device`: what runs compiled kernels; a GPU, or in tests an executor of TTGIR."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tirgym.kernels_suite.kernel import Array, Tensor, Workload
from tirgym.kernels_suite.registry import load_workload
from tirgym.kernels_suite.triton.source import Config, Launch, TritonSource

__all__ = ["Binary", "Device", "DeviceFacts", "Place", "Runnable", "Tuned"]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known of a device and the software that drives it."""

    product: str
    """"NVIDIA H200" """
    arch: str
    """"sm_90" """
    compute_units: int
    memory_bytes: int
    l2_bytes: int
    driver: str
    versions: Mapping[str, str]
    """Python, torch, triton, …"""


class Runnable(Protocol):
    """What a device runs: a Triton kernel (`Binary`) or TVM's kernels (`CudaProgram`); plain data that
    crosses process borders."""

    @property
    def workload(self) -> str:
        """URI."""

    @property
    def code_key(self) -> str:
        """16 hex digits, equal for equal machine code."""

    def stated_workload(self) -> Workload:
        """What it computes; its kernel states what a gate without TVM must know."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel and how it is launched; plain data that crosses process borders."""

    workload: str
    """URI"""
    launch: Launch
    image: bytes
    """cubin"""
    name: str
    """of the function in it"""
    shared_bytes: int
    num_warps: int
    texts: Mapping[str, str]
    """level → text: "ptx" says what the function takes"""

    @cached_property
    def code_key(self) -> str:
        """16 hex digits of the machine code."""
        return hashlib.sha256(self.image).hexdigest()[:16]

    def stated_workload(self) -> Workload:
        """The workload of the URI."""
        return load_workload(self.workload)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies on a device."""

    memory: Any
    """what `Device.allocate` gave"""
    offset: int
    """bytes from its start"""
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Tuned:
    """What Triton's autotuner chose."""

    config: dict[str, int]
    times_us: tuple[float, ...]
    """by its own clock, in the order of the configurations; infinite for those it could not run"""
    how: str
    """"triton.autotune", or what took its place and why"""


class Device(Protocol):
    """Memory, launches and a clock. Raises DeviceError, or what its libraries raise."""

    @property
    def facts(self) -> DeviceFacts:
        """Product and software."""

    @property
    def timer(self) -> str:
        """Name of the clock and the state of the cache; stands in each measurement."""

    def allocate(self, nbytes: int) -> Any:
        """Memory of `nbytes`, aligned to at least 256."""

    def upload(self, memory: Any, content: Array) -> None:
        """Copy bytes to the start of `memory`."""

    def download(self, memory: Any, into: Array) -> None:
        """Copy bytes from the start of `memory`."""

    def tensor(self, place: Place) -> Any:
        """The tensor at `place` for torch."""

    def load(self, binary: Runnable) -> Any:
        """Its kernels, ready for `launch`; raises CompileFailedError where they must be compiled first."""

    def launch(self, loaded: Any, places: Mapping[str, Place]) -> None:
        """Start a launch on tensors by name; does not wait."""

    def synchronize(self) -> None:
        """Wait for everything that was started."""

    def elapsed_s(self, call: Callable[[], Any], calls: int) -> float:
        """Mean seconds of one call on the device, the cache cold before each."""

    def copier(self, nbytes: int) -> Callable[[], Any]:
        """A call that copies `nbytes` from one place of the device's memory to another."""

    def vendor(self, kernel: str) -> Callable[..., Callable[[], Any]] | None:
        """The vendor library's kernel, bound to tensors (inputs, outputs), as a call that answers its
        result; None if there is none."""

    def keep(self, result: Any, place: Place) -> None:
        """Put a vendor's result at `place`, unless it lies there."""

    def autotune(
        self, source: TritonSource, binary: Binary, configs: Sequence[Config], tensors: list[Any]
    ) -> Tuned:
        """The choice of Triton's autotuner among `configs`, on tensors in the order of the workload's
        parameters; `binary` is the kernel with its default configuration."""

    def clock_mhz(self) -> int | None:
        """Clock of the compute units now; None where nothing tells it."""
