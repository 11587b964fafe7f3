"""`CudaWorker`: memory with guard zones and the clock of events of an NVIDIA GPU, for workbenches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from tirgym.harness.buffers import GUARD_BYTES, GuardedBuffer
from tirgym.harness.cuda.compiling import nvrtc
from tirgym.harness.cuda.kernels import CudaKernels
from tirgym.harness.cuda.session import Session, session
from tirgym.harness.launches import DeviceCode
from tirgym.harness.target import Target
from tirgym.harness.timing import COLD, Call, Timer
from tirgym.harness.worker_device import Bind, BoundCall, VendorCall
from tirgym.kernels_suite.kernel import Tensor

__all__ = [
    "ROTATION",
    "Copies",
    "CudaBuffer",
    "CudaWorker",
    "DeviceArray",
    "EventTimer",
    "LoadedKernels",
    "RotatingKernels",
    "VendorKernels",
]

ROTATION = 2
"""sets of buffers that timed calls take in turn"""
_NULL_STREAM = 0
"""CuPy's current stream unless somebody chooses another"""
_MAX_CALLS = 100
"""in one sample: the queue of launches holds about a thousand"""


class Copies:
    """The places of one tensor in device memory, which timed calls take in turn."""

    def __init__(self, addresses: Sequence[int]) -> None:
        self.addresses = tuple(addresses)
        self.used: set[int] = set()
        """places that calls were given since the tensor was sent"""

    def address(self, turn: int = 0) -> int:
        """Of the place whose turn it is; everything but a timed call takes the first."""
        place = turn % len(self.addresses)
        self.used.add(place)
        return self.addresses[place]


class DeviceArray:
    """A tensor in device memory for libraries that read `__cuda_array_interface__` (version 3); does not
    keep the memory."""

    def __init__(self, tensor: Tensor, address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": tensor.shape,
            "typestr": np.dtype(tensor.dtype).str,
            "data": (address, False),
            "version": 3,
        }


class CudaBuffer(GuardedBuffer):
    """The host's guard, tensor and guard lie in device memory in the same order, `ROTATION` times; a
    kernel is given the address between the guards of one of them."""

    def __init__(self, tensor: Tensor, index: int, there: Session) -> None:
        super().__init__(tensor, index)
        nbytes = self.guarded.nbytes
        self._memories = [there.allocate(nbytes) for _ in range(ROTATION)]
        self._copies = Copies([int(memory.ptr) + GUARD_BYTES for memory in self._memories])

    @property
    def device(self) -> Copies:
        """Where the tensor lies."""
        return self._copies

    def view(self, place: int) -> DeviceArray:
        """The tensor at one of its places."""
        return DeviceArray(self.tensor, self._copies.addresses[place])

    def send(self) -> None:
        """Copy guards and tensor to each place."""
        for memory in self._memories:
            memory.copy_from_host(self.guarded.ctypes.data, self.guarded.nbytes)
        self._copies.used = set()

    @property
    def places(self) -> tuple[int, ...]:
        """The first one if no call was given any."""
        return tuple(sorted(self._copies.used)) or (0,)

    def fetch(self, place: int = 0) -> None:
        """Copy guards and tensor from one place."""
        memory = self._memories[place if place in self.places else self.places[0]]
        memory.copy_to_host(self.guarded.ctypes.data, self.guarded.nbytes)


class RotatingKernels:
    """f(*inputs, *outputs) on `Copies`: starts kernels and waits."""

    launches: int
    """kernels of one call, or more"""

    def __init__(self, there: Session) -> None:
        self._session, self._turn = there, 0

    def start(self, *arguments: Copies) -> None:
        """Begin on the next places in turn, without waiting."""
        self._begin(self._turn, [copies.address(self._turn) for copies in arguments])
        self._turn += 1

    def __call__(self, *arguments: Copies) -> None:
        """Begin on the first places and wait."""
        self._begin(0, [copies.address() for copies in arguments])
        self._session.wait()

    def _begin(self, turn: int, addresses: Sequence[int]) -> None:
        raise NotImplementedError


class LoadedKernels(RotatingKernels):
    """Every kernel of a compiled program, in order."""

    def __init__(self, code: DeviceCode, there: Session) -> None:
        """Raises CompileFailedError or DeviceError."""
        super().__init__(there)
        self._workspaces = [there.allocate(max(1, n)) for n in code.workspaces]
        image = nvrtc(code.source, there.arch)
        addresses = [int(memory.ptr) for memory in self._workspaces]
        self._kernels = CudaKernels(code, image, there.driver, addresses)
        self.launches = len(code.launches)

    def _begin(self, turn: int, addresses: Sequence[int]) -> None:
        self._kernels.launch(addresses, _NULL_STREAM)


class VendorKernels(RotatingKernels):
    """Calls of a library, one bound to each set of buffers."""

    launches = 4
    """more than most operators of a library launch"""

    def __init__(self, calls: Sequence[BoundCall], there: Session) -> None:
        super().__init__(there)
        self._calls = tuple(calls)

    def _begin(self, turn: int, addresses: Sequence[int]) -> None:
        self._calls[turn % len(self._calls)].run()

    def keep(self) -> None:
        """Put what each call computed last into its own outputs, and wait."""
        for call in self._calls:
            call.keep()
        self._session.wait()


class EventTimer:
    """Events around each call, the L2 cache flushed before it, outside of the events; calls take
    `ROTATION` sets of buffers in turn.

    Pauses between the kernels of a call count. One flush for each launch keeps the device busy until
    the host has launched them all, so that it never waits for the host.
    """

    name = f"cuda_events_{ROTATION}_buffers{COLD}"

    def __init__(self, there: Session) -> None:
        self._session = there

    def time(self, call: Call, calls: int) -> float:
        """Mean seconds of one call."""
        function = cast(RotatingKernels, call.function)
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

    def vendor_call(self, buffers: Sequence[GuardedBuffer], bind: Bind) -> VendorCall:
        """On what has `__cuda_array_interface__`, once for each set of buffers."""
        ours = cast(Sequence[CudaBuffer], buffers)
        calls = [bind(tuple(b.view(place) for b in ours)) for place in range(ROTATION)]
        kernels = VendorKernels(calls, self._session)
        return VendorCall(Call(kernels, tuple(b.device for b in ours)), kernels.keep)

    def timer(self) -> Timer:
        """The device's own clock."""
        return EventTimer(self._session)

    def clock_mhz(self) -> int | None:
        """Of the multiprocessors."""
        return self._session.clock_mhz()
