"""`limits_of`: the limits of an OpenCL device, from its own properties."""

from __future__ import annotations

from tirgym.harness.opencl.devices import device_for
from tirgym.harness.target import Target
from tirgym.harness.tensorir.device_limits import DeviceLimits

__all__ = ["limits_of"]

_LANES = (2, 3, 4, 8, 16)
"""OpenCL C 1.2, section 6.1.2: built-in vector types; TVM makes no others."""
_GRID = 2**31 - 1
"""OpenCL bounds work-groups by the size of size_t alone; indices of TVM's kernels are 32-bit."""
_PRIVATE_BYTES = 16 << 10
"""Of one work-item. OpenCL names no limit; PoCL keeps it on the stack, once for each work-item."""


def limits_of(target: Target) -> DeviceLimits:
    """Raises TargetMismatchError where this machine does not have the device."""
    device = device_for(target)
    return DeviceLimits(
        max_threads=device.max_threads,
        thread_extents=device.max_thread_extents,
        grid_extents=(_GRID, _GRID, _GRID),
        shared_bytes=device.shared_bytes,
        local_bytes=_PRIVATE_BYTES,
        lanes=_LANES,
    )
