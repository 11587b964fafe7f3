"""`OpenCLWorker`: memory and clock of an OpenCL device, for workbenches."""

from __future__ import annotations

from collections.abc import Sequence

from tirgym.errors import BackendUnavailableError
from tirgym.harness.buffers import GuardedBuffer
from tirgym.harness.opencl.launch import EventTimer
from tirgym.harness.opencl.memory import OpenCLBuffer
from tirgym.harness.opencl.session import session
from tirgym.harness.target import Target
from tirgym.harness.timing import Timer
from tirgym.harness.worker_device import Bind, VendorCall
from tirgym.kernels_suite.kernel import Tensor

__all__ = ["OpenCLWorker"]


class OpenCLWorker:
    """Made in the worker process."""

    def __init__(self, target: Target) -> None:
        self._session = session(target)

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Device memory with guard zones."""
        return OpenCLBuffer(tensor, index, self._session)

    def vendor_call(self, buffers: Sequence[GuardedBuffer], bind: Bind) -> VendorCall:
        """Raises BackendUnavailableError: no library that is known here works in OpenCL's memory."""
        raise BackendUnavailableError("no library's calls work in the memory of an OpenCL device")

    def timer(self) -> Timer:
        """The device's own clock."""
        return EventTimer()

    def clock_mhz(self) -> None:
        """Unknown: OpenCL tells the highest clock alone."""
