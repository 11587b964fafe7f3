"""`CudaKernels`: a program of CUDA kernels in the driver's hands, ready to be launched."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tirgym.errors import BackendUnavailableError
from tirgym.harness.cuda.compiling import nvrtc, why_no_nvrtc
from tirgym.harness.cuda.driver import CudaDriver, Function
from tirgym.harness.cuda.program import CudaProgram
from tirgym.harness.launches import DeviceCode

__all__ = ["CudaKernels", "image_of"]


def image_of(program: CudaProgram, arch: str) -> bytes:
    """Machine code for `arch`: the program's own, else what NVRTC makes of its source.

    Raises CompileFailedError, and BackendUnavailableError where neither can be had.
    """
    if program.cubin and program.arch == arch:
        return program.cubin
    problem = why_no_nvrtc()
    if problem is not None:
        made = f"only for {program.arch}" if program.cubin else "in no binary"
        raise BackendUnavailableError(f"prepared {made}, and this GPU is {arch}; {problem}")
    return nvrtc(program.code.source, arch)


class CudaKernels:
    """Launches all kernels of a program in order, on one stream, and waits for none."""

    def __init__(
        self,
        code: DeviceCode,
        image: bytes,
        driver: CudaDriver,
        workspaces: Sequence[int],
    ) -> None:
        """`workspaces` are addresses of device memory that outlives this object, as many bytes each as
        the code asks for. Raises DeviceError for an image that cannot be loaded.
        """
        self._driver = driver
        module = driver.module(image)
        names = dict.fromkeys(launch.kernel for launch in code.launches)
        self._functions: dict[str, Function] = {n: driver.function(module, n) for n in names}
        self._launches = code.launches
        self._workspaces = tuple(workspaces)
        self._values: dict[tuple[int, ...], list[list[ctypes.c_uint64]]] = {}

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Start on tensors at `addresses`, in the order inputs, outputs; raises DeviceError."""
        given = tuple(addresses)
        if given not in self._values:
            places = (*given, *self._workspaces)
            self._values[given] = [
                [ctypes.c_uint64(places[place]) for place in step.arguments]
                for step in self._launches
            ]
        for step, values in zip(self._launches, self._values[given], strict=True):
            (gx, gy, gz), (bx, by, bz) = step.grid, step.block
            function = self._functions[step.kernel]
            self._driver.launch(function, (gx, gy, gz), (bx, by, bz), stream, values)
