"""Limits of NVIDIA's and AMD's GPUs that decide which thread-bound programs are legal."""

from __future__ import annotations

from collections.abc import Mapping

from tirgym.errors import UnknownNameError
from tirgym.harness.target import Target
from tirgym.harness.tensorir.device_limits import DeviceLimits
from tirgym.harness.triton.gpus import GPUS

__all__ = ["archs_of", "limits_of"]

_X = 2**31 - 1
CUDA = DeviceLimits(
    max_threads=1024,
    thread_extents=(1024, 1024, 64),
    grid_extents=(_X, 65535, 65535),
    shared_bytes=48 << 10,
    local_bytes=512 << 10,
    lanes=(2, 4),
    vector_bytes=16,
    features=("wmma", "cp.async"),
)
"""CUDA C++ Programming Guide, technical specifications per compute capability, the same for 8.0 to 10.0.
Shared memory is what a kernel may declare statically, as TVM's do: more needs a request at the launch.
Warp matrix functions exist from 7.0 on (int8: 7.2), asynchronous copies from 8.0 on."""
ROCM = DeviceLimits(
    max_threads=1024,
    thread_extents=(1024, 1024, 1024),
    grid_extents=(_X, 65535, 65535),
    shared_bytes=64 << 10,
    local_bytes=256 << 10,
    lanes=(2, 4),
)
"""HIP programming model and the LDS size of the CDNA 3 and RDNA 3 instruction set guides: 64 KiB a
work-group. Memory of a thread: what MetaSchedule allows."""

_LIMITS: Mapping[str, tuple[str, DeviceLimits]] = {
    "cuda": ("nvidia", CUDA),
    "rocm": ("amd", ROCM),
}


def archs_of(backend: str) -> tuple[str, ...]:
    """The architectures that a backend compiles for."""
    vendor, _ = _LIMITS[backend]
    return tuple(gpu.arch for gpu in GPUS.values() if gpu.vendor == vendor)


def limits_of(target: Target) -> DeviceLimits:
    """Raises UnknownNameError for an architecture that the backend does not compile for."""
    if target.arch not in archs_of(target.backend):
        raise UnknownNameError(
            f"arch of backend {target.backend}", target.arch, archs_of(target.backend)
        )
    return _LIMITS[target.backend][1]
