"""`CudaDriver`: the few functions of NVIDIA's driver that load and launch a cubin, through ctypes.

One way for every version of Triton, and for cubins that were made elsewhere; the context and stream of
torch or CuPy are used. Names and constants: CUDA Driver API, module management and execution control.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tirgym.errors import BackendUnavailableError, DeviceError

__all__ = ["CudaDriver", "Function"]

_LIBRARY = "libcuda.so.1"
_PLAIN_SHARED_BYTES = 48 << 10
"""dynamic shared memory that a function may have without asking"""
_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
_PREFER_SHARED = 1
"""CU_FUNC_CACHE_PREFER_SHARED"""


class Function:
    """A function of a loaded module."""

    def __init__(self, module: ctypes.c_void_p, handle: ctypes.c_void_p, shared_bytes: int) -> None:
        self.module, self.handle, self.shared_bytes = module, handle, shared_bytes


class CudaDriver:
    """Works in the context that is current, which torch or CuPy has made."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls, path: str = _LIBRARY) -> CudaDriver:
        """Raises BackendUnavailableError without a driver."""
        try:
            return cls(ctypes.CDLL(path))
        except OSError:
            raise BackendUnavailableError(
                f"no NVIDIA driver: {path} cannot be loaded; run this on a machine with an NVIDIA "
                "GPU and its driver"
            ) from None

    def load(self, image: bytes, name: str, shared_bytes: int) -> Function:
        """The function `name` of a cubin; raises DeviceError."""
        return self.function(self.module(image), name, shared_bytes)

    def module(self, image: bytes) -> ctypes.c_void_p:
        """A cubin, loaded; raises DeviceError."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        return module

    def function(self, module: ctypes.c_void_p, name: str, shared_bytes: int = 0) -> Function:
        """The function `name` with room for `shared_bytes` of dynamic shared memory; raises DeviceError."""
        handle = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(handle), module, name.encode())
        if shared_bytes > _PLAIN_SHARED_BYTES:
            size = ctypes.c_int(shared_bytes)
            self._call("cuFuncSetCacheConfig", handle, ctypes.c_int(_PREFER_SHARED))
            self._call("cuFuncSetAttribute", handle, ctypes.c_int(_MAX_DYNAMIC_SHARED), size)
        return Function(module, handle, shared_bytes)

    def unload(self, function: Function) -> None:
        """Give the module back; nothing may still run in it."""
        self._call("cuModuleUnload", function.module)

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        stream: int,
        values: Sequence[Any],
    ) -> None:
        """Start `grid` blocks of `block` threads (x, y, z); `values` are ctypes objects, one a parameter."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = (*grid, *block, function.shared_bytes)
        self._call(
            "cuLaunchKernel",
            function.handle,
            *(ctypes.c_uint(size) for size in sizes),
            ctypes.c_void_p(stream),
            pointers,
            None,
        )

    def version(self) -> str:
        """Newest CUDA that the driver supports: "13.0"."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._library, name)(*arguments))
        if code:
            text = ctypes.c_char_p()
            known = self._library.cuGetErrorString(code, ctypes.byref(text)) == 0
            reason = text.value.decode() if known and text.value else "unknown error"
            raise DeviceError(name, code, reason)
