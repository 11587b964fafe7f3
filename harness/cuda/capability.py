"""Whether this machine has a GPU: asked of the driver's library, without torch or triton."""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["cuda_capability"]

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (CUDA Driver API, CUdevice_attribute)"""


@cache
def cuda_capability() -> str | None:
    """ "sm_90" of the first NVIDIA GPU; None without a driver or a device."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device = ctypes.c_int(), ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if library.cuDeviceGet(ctypes.byref(device), 0):
        return None
    numbers = [ctypes.c_int(), ctypes.c_int()]
    for number, attribute in zip(numbers, (_MAJOR, _MINOR), strict=True):
        if library.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return f"sm_{numbers[0].value}{numbers[1].value}"
