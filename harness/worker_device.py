"""`WorkerDevice`: where a worker keeps tensors and by which clock it times; the table of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from tirgym.harness.buffers import GuardedBuffer
from tirgym.harness.target import Target
from tirgym.harness.timing import Timer, default_timer
from tirgym.kernels_suite.kernel import Tensor

__all__ = ["UNBOUNDED", "WORKER_DEVICES", "HostDevice", "WorkerDevice", "worker_device"]


class WorkerDevice(Protocol):
    """Memory and clock of the device that a workbench runs programs on."""

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Guarded memory of parameter `index`."""

    def timer(self) -> Timer:
        """The clock that is used unless a caller brings another."""


class HostDevice:
    """This machine's memory and clocks."""

    def __init__(self, target: Target) -> None:
        self._num_threads = target.num_threads

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Memory of the process."""
        return GuardedBuffer(tensor, index)

    def timer(self) -> Timer:
        """CPU time of one thread where that is exact, else wall time."""
        return default_timer(self._num_threads)


WORKER_DEVICES: Mapping[str, str] = {
    "cuda": "tirgym.harness.cuda.worker_device:CudaWorker",
    "opencl": "tirgym.harness.opencl.worker_device:OpenCLWorker",
}
"""Backend → "module:Class", for backends whose code does not run in this machine's memory."""

UNBOUNDED = ("cuda",)
"""Backends whose driver maps more addresses than any bound on a worker's memory could be."""


def worker_device(target: Target) -> WorkerDevice:
    """The device of `target`; made in a worker process, since devices do not survive a fork."""
    where = WORKER_DEVICES.get(target.backend)
    if where is None:
        return HostDevice(target)
    module, _, attribute = where.partition(":")
    return cast(WorkerDevice, getattr(import_module(module), attribute)(target))
