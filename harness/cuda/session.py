"""`Session`: the GPU of one worker process through CuPy: its context, the driver, the buffer that empties
the L2 cache."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any

from tirgym.errors import BackendUnavailableError
from tirgym.harness.cuda.capability import cuda_capability
from tirgym.harness.cuda.clocks import sm_clock_mhz
from tirgym.harness.cuda.compiling import why_no_nvrtc
from tirgym.harness.cuda.driver import CudaDriver
from tirgym.harness.target import Target

__all__ = ["FLUSH_SHARE", "Session", "session", "why_no_device"]

FLUSH_SHARE = 2
"""the buffer that empties the L2 cache, in sizes of that cache"""


def why_no_device(arch: str) -> str | None:
    """What keeps this machine from running code for `arch`, in one line; None if nothing. Makes no
    context."""
    found = cuda_capability()
    if found is None:
        return "this machine has no NVIDIA GPU with its driver (libcuda.so.1)"
    if found != arch:
        return f"this machine's GPU is {found}"
    return why_no_nvrtc()


class Session:
    """Made in the worker, after the fork: a context does not survive one."""

    def __init__(self, target: Target) -> None:
        problem = why_no_device(target.arch)
        if problem is not None:
            raise BackendUnavailableError(f"no GPU for {target}: {problem}")
        import cupy

        self.arch, self._cuda = target.arch, cupy.cuda
        self.driver = CudaDriver.open()
        runtime, device = cupy.cuda.runtime, cupy.cuda.runtime.getDevice()
        properties = runtime.getDeviceProperties(device)
        self._bus = str(runtime.deviceGetPCIBusId(device))
        self._flush_bytes = FLUSH_SHARE * int(properties["l2CacheSize"])
        self._flush = self.allocate(self._flush_bytes)  # makes the context that the driver uses

    def allocate(self, nbytes: int) -> Any:
        """Device memory, aligned to 512 bytes: `ptr`, `copy_from_host`, `copy_to_host`."""
        return self._cuda.alloc(nbytes)

    def flush(self) -> None:
        """Write twice the L2 cache; does not wait."""
        self._flush.memset_async(0, self._flush_bytes)

    def event(self) -> Any:
        """A recorded moment of the stream that kernels are launched to."""
        made = self._cuda.Event()
        made.record()
        return made

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two events that are over."""
        return float(self._cuda.get_elapsed_time(begin, end)) * 1e-3

    def clock_mhz(self) -> int | None:
        """Of the multiprocessors now; None where neither pynvml nor nvidia-smi tells it."""
        return sm_clock_mhz(self._bus)

    def wait(self) -> None:
        """Until everything is done. A kernel that broke the context ends the process: nothing works in it
        any more."""
        try:
            self._cuda.runtime.deviceSynchronize()
        except self._cuda.runtime.CUDARuntimeError as error:
            print(str(error), file=sys.stderr, flush=True)
            os._exit(1)


@lru_cache(maxsize=1)
def session(target: Target) -> Session:
    """The session of this process; a worker has one device."""
    return Session(target)
