"""`WorkerDevice`: where a worker keeps tensors and by which clock it times; the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from tirgym.harness.buffers import GuardedBuffer
from tirgym.harness.target import Target
from tirgym.harness.timing import Call, Timer, default_timer
from tirgym.kernels_suite.kernel import Tensor

__all__ = [
    "UNBOUNDED",
    "WORKER_DEVICES",
    "Bind",
    "BoundCall",
    "HostDevice",
    "VendorCall",
    "WorkerDevice",
    "worker_device",
]


def _lies_there() -> None:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A library's call on arrays that were given, inputs and then outputs."""

    run: Callable[[], Any]
    """what is timed"""
    keep: Callable[[], None] = _lies_there
    """puts what `run` computed last into the outputs, where it does not lie there already"""


Bind = Callable[[tuple[Any, ...]], BoundCall]
"""Arrays → a call that works on them"""


@dataclass(frozen=True, slots=True)
class VendorCall:
    """A library's call on a device's buffers."""

    timed: Call
    keep: Callable[[], None]
    """as in `BoundCall`"""

    def __call__(self, *_: Any) -> None:
        """As the gate runs a program, whose arguments are not needed: call, and keep the outputs."""
        self.timed.function(*self.timed.arguments)
        self.keep()


class WorkerDevice(Protocol):
    """Memory and clock of the device that a workbench runs programs on."""

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Guarded memory of parameter `index`."""

    def vendor_call(self, buffers: Sequence[GuardedBuffer], bind: Bind) -> VendorCall:
        """A library's call on `buffers`, which `buffer` made; what `bind` is given are arrays in the
        device's memory, in the same order."""

    def timer(self) -> Timer:
        """The clock that is used unless a caller brings another."""

    def clock_mhz(self) -> int | None:
        """How fast the device's processors run now; None where it does not tell."""


class HostDevice:
    """This machine's memory and clocks."""

    def __init__(self, target: Target) -> None:
        self._num_threads = target.num_threads

    def buffer(self, tensor: Tensor, index: int) -> GuardedBuffer:
        """Memory of the process."""
        return GuardedBuffer(tensor, index)

    def vendor_call(self, buffers: Sequence[GuardedBuffer], bind: Bind) -> VendorCall:
        """On NumPy arrays."""
        call = bind(tuple(buffer.array for buffer in buffers))
        return VendorCall(Call(call.run), call.keep)

    def timer(self) -> Timer:
        """CPU time of one thread where that is exact, else wall time."""
        return default_timer(self._num_threads)

    def clock_mhz(self) -> None:
        """Unknown: virtual machines do not tell, and others round."""


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
