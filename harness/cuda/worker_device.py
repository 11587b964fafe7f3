"""`CudaWorker`: memory with guard zones and the clock of events of an NVIDIA GPU, for workbenches."""

from __future__ import annotations

from typing import Any

from tirgym.harness.buffers import GUARD_BYTES, GuardedBuffer
from tirgym.harness.cuda.compiling import nvrtc
from tirgym.harness.cuda.kernels import CudaKernels
from tirgym.harness.cuda.session import Session, session
from tirgym.harness.launches import DeviceCode
from tirgym.harness.target import Target
from tirgym.harness.timing import COLD, Call, Timer
from tirgym.kernels_suite.kernel import Tensor

__all__ = ["CudaBuffer", "CudaWorker", "EventTimer", "LoadedKernels"]

_NULL_STREAM = 0
"""CuPy's current stream unless somebody chooses another"""
_MAX_CALLS = 100
"""in one sample: the queue of launches holds about a thousand"""


class CudaBuffer(GuardedBuffer):
    """The host's guard, tensor and guard lie in device memory in the same order; a kernel is given the
    address between the guards."""

    def __init__(self, tensor: Tensor, index: int, there: Session) -> None:
        super().__init__(tensor, index)
        self._memory = there.allocate(self.guarded.nbytes)

    @property
    def device(self) -> int:
        """Address of the tensor."""
        return int(self._memory.ptr) + GUARD_BYTES

    def send(self) -> None:
        """Copy guards and tensor to the device."""
        self._memory.copy_from_host(self.guarded.ctypes.data, self.guarded.nbytes)

    def fetch(self) -> None:
        """Copy guards and tensor from the device."""
        self._memory.copy_to_host(self.guarded.ctypes.data, self.guarded.nbytes)


class LoadedKernels:
    """f(*inputs, *outputs) on addresses: launches every kernel in order and waits."""

    def __init__(self, code: DeviceCode, there: Session) -> None:
        """Raises CompileFailedError or DeviceError."""
        self._session, self._workspaces = (
            there,
            [there.allocate(max(1, n)) for n in code.workspaces],
        )
        image = nvrtc(code.source, there.arch)
        addresses = [int(memory.ptr) for memory in self._workspaces]
        self._kernels = CudaKernels(code, image, there.driver, addresses)
        self.launches = len(code.launches)

    def start(self, *arguments: int) -> None:
        """Launch without waiting."""
        self._kernels.launch(arguments, _NULL_STREAM)

    def __call__(self, *arguments: int) -> None:
        """Launch and wait."""
        self.start(*arguments)
        self._session.wait()


class EventTimer:
    """Events around each call, the L2 cache flushed before it, outside of the events.

    Pauses between the kernels of a call count. One flush for each launch keeps the device busy until
    the host has launched them all, so that it never waits for the host.
    """

    name = f"cuda_events{COLD}"

    def __init__(self, there: Session) -> None:
        self._session = there

    def time(self, call: Call, calls: int) -> float:
        """Mean seconds of one call."""
        function: Any = call.function
        pairs = []
        for _ in range(min(calls, _MAX_CALLS)):
            for _ in range(1 + function.launches):
                self._session.flush()
            begin = self._session.event()
            function.start(*call.arguments)
            pairs.append((begin, self._session.event()))
        self._session.wait()
        return sum(self._session.seconds(*pair) for pair in pairs) / len(pairs)


class CudaWorker:
    """Made in the worker process."""

    def __init__(self, target: Target) -> None:
        self._session = session(target)

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Device memory with guard zones."""
        return CudaBuffer(tensor, index, self._session)

    def timer(self) -> Timer:
        """The device's own clock."""
        return EventTimer(self._session)
