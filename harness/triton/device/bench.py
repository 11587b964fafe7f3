"""`DeviceBench`: guarded memory of the host with its twin on a device, so that the gate judges there too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tirgym.harness.buffers import GUARD_BYTES, GuardedBuffer, Poison
from tirgym.harness.gate import Bench, InputSet
from tirgym.harness.triton.device.device import Device, Place
from tirgym.kernels_suite.kernel import Workload
from tirgym.kernels_suite.problem import tensors

__all__ = ["DeviceBench"]


class DeviceBench(Bench):
    """Inputs, poisoned outputs and guard bands travel to the device before each call and back after
    it; they are filled and judged on the host, as everywhere else."""

    def __init__(self, device: Device, workload: Workload) -> None:
        inputs, outputs = tensors(workload)
        made = [GuardedBuffer(tensor, i) for i, tensor in enumerate((*inputs, *outputs))]
        super().__init__(made[: len(inputs)], made[len(inputs) :], workload.kernel.compare)
        self._device = device
        self._twins = [(buffer, device.allocate(buffer.guarded.nbytes)) for buffer in made]
        self.places = tuple(
            Place(memory, GUARD_BYTES, buffer.tensor) for buffer, memory in self._twins
        )

    def arguments(self) -> tuple[Any, ...]:
        """Places in the order inputs, outputs."""
        return self.places

    @property
    def nbytes(self) -> int:
        """Memory on either side."""
        return sum(buffer.guarded.nbytes for buffer, _ in self._twins)

    def upload(self) -> None:
        """Everything to the device."""
        self._send(0)

    def renew_outputs(self) -> None:
        """Poison the outputs, here and there; the inputs stay as they are."""
        for buffer in self.outputs:
            buffer.poison(Poison.NAN)
        self._send(len(self.inputs))

    def _send(self, first: int) -> None:
        for buffer, memory in self._twins[first:]:
            self._device.upload(memory, buffer.guarded)
        self._device.synchronize()

    def download(self) -> None:
        """Everything from the device."""
        self._device.synchronize()
        for buffer, memory in self._twins:
            self._device.download(memory, buffer.guarded)

    def run(self, function: Callable[..., Any], given: InputSet, poison: Poison) -> float:
        """One call on poisoned outputs; its seconds, from the launch until it is done."""
        self.prepare(given, poison)
        self.upload()
        start = time.perf_counter()
        function(*self.places)
        self._device.synchronize()
        seconds = time.perf_counter() - start
        self.runs_s += seconds
        self.download()
        return seconds
