"""Whether this machine has a GPU: asked of the driver's library, without torch or triton."""

from __future__ import annotations

import ctypes
from functools import cache

__all__ = ["cuda_capability", "cuda_product"]

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR (CUDA Driver API, CUdevice_attribute)"""


_NAME_BYTES = 128


@cache
def cuda_capability() -> str | None:
    """ "sm_90" of the first NVIDIA GPU; None without a driver or a device."""
    found = _first_device()
    if found is None:
        return None
    library, device = found
    numbers = [ctypes.c_int(), ctypes.c_int()]
    for number, attribute in zip(numbers, (_MAJOR, _MINOR), strict=True):
        if library.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return f"sm_{numbers[0].value}{numbers[1].value}"


@cache
def cuda_product() -> str:
    """ "NVIDIA H200" of the first GPU; "" without one."""
    found = _first_device()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    if found is None or found[0].cuDeviceGetName(name, _NAME_BYTES, found[1]):
        return ""
    return name.value.decode("utf-8", "replace")


def _first_device() -> tuple[ctypes.CDLL, ctypes.c_int] | None:
    """The driver's library and its first device."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device = ctypes.c_int(), ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if library.cuDeviceGet(ctypes.byref(device), 0):
        return None
    return library, device
