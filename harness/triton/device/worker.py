"""The device's process: it holds the GPU's context, and dies with whatever a kernel does to that.

A kernel that reads what is not there leaves a context in which nothing works any more, and one that
never ends cannot be stopped: so launches have a process of their own, which is replaced.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

import psutil

from tirgym.errors import TirgymError, WorkerDiedError
from tirgym.harness.channel import Channel
from tirgym.harness.evaluation import Evaluation, GateReport
from tirgym.harness.fork_server import die_with_parent
from tirgym.harness.status import Status
from tirgym.harness.triton.device.device import Binary, Device, DeviceFacts, Runnable, Tuned
from tirgym.harness.triton.device.evaluator import DeviceEvaluator, VendorTime, Versus
from tirgym.kernels_suite.kernel import Regime
from tirgym.kernels_suite.triton.source import Config
from tirgym.kernels_suite.triton.sources import triton_source

__all__ = ["ANSWERED", "FAILED", "LOST", "DeviceDesk", "main"]

ANSWERED, FAILED, LOST = "answered", "failed", "lost"
"""First part of an answer. FAILED carries an error of this package, LOST the text of anything else,
after which the process ends."""


_SHARE = 4
"""one part in this many of the memory that is free, here and on the device, holds workloads"""


class DeviceDesk:
    """What the process does when asked: plain data in and out. Workloads are kept with their references
    as long as there is room."""

    def __init__(self, device: Device, secret: bytes, room_bytes: int | None = None) -> None:
        """`room_bytes` None looks what is free."""
        self._device, self._secret = device, secret
        free = min(psutil.virtual_memory().available, device.facts.memory_bytes) // _SHARE
        self._room = free if room_bytes is None else room_bytes
        self._evaluators: dict[str, DeviceEvaluator] = {}

    def answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What `method` answers, once the device has done everything.

        Raises what the method raises; where a kernel broke the device's context what the device raises,
        whatever the method made of it: nothing works there any more, and no other call may be blamed.
        """
        try:
            return getattr(self, method)(*arguments)
        finally:
            self._device.synchronize()

    def facts(self) -> DeviceFacts:
        """Of the device."""
        return self._device.facts

    def clock_mhz(self) -> int | None:
        """Now."""
        return self._device.clock_mhz()

    def copy_gbs(self, nbytes: int) -> float:
        """Bandwidth of a copy of `nbytes`, read and written, in GB/s: the best of a few samples."""
        call = self._device.copier(nbytes)
        self._device.elapsed_s(call, 2)
        best = min(self._device.elapsed_s(call, 5) for _ in range(5))
        return 2.0 * nbytes / best * 1e-9

    def check(
        self, default: Runnable, binary: Runnable, regimes: Sequence[Regime]
    ) -> tuple[Status, GateReport]:
        """The gate's verdict."""
        return self._of(default).check(binary, regimes)

    def evaluate(
        self, default: Runnable, binary: Runnable, regimes: Sequence[Regime], floor_us: float
    ) -> Evaluation:
        """Gate and time."""
        return self._of(default).evaluate(binary, regimes, floor_us)

    def compare(
        self, default: Runnable, first: Runnable, second: Runnable, regimes: Sequence[Regime]
    ) -> Versus:
        """Two interleaved."""
        return self._of(default).compare(first, second, regimes)

    def vendor(self, default: Runnable, binary: Runnable) -> VendorTime | None:
        """Beside the vendor's kernel."""
        return self._of(default).against_vendor(binary)

    def autotune(self, default: Binary, configs: Sequence[Config]) -> Tuned:
        """The choice of Triton's autotuner."""
        evaluator = self._of(default)
        source = triton_source(evaluator.workload.kernel)
        return self._device.autotune(source, default, configs, evaluator.tensors())

    def _of(self, default: Runnable) -> DeviceEvaluator:
        """The evaluator of the workload; those that were asked longest ago make room for a new one."""
        found = self._evaluators.pop(default.workload, None)
        if found is None or found.default != default:
            while self._evaluators and self._held > self._room:
                del self._evaluators[next(iter(self._evaluators))]
            workload = default.stated_workload()
            found = DeviceEvaluator(self._device, default, workload, self._secret)
        self._evaluators[default.workload] = found
        return found

    @property
    def _held(self) -> int:
        return sum(evaluator.nbytes for evaluator in self._evaluators.values())


def main(control_fd: int, factory: str, secret: str) -> NoReturn:
    """Serve (method, arguments) until the socket closes; `factory` is "module:function"."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=control_fd))
    status = 1
    try:
        answer = _guarded(lambda: DeviceDesk(_opened(factory), bytes.fromhex(secret)))
        desk = answer[1]
        channel.send((answer[0], None if answer[0] == ANSWERED else desk))
        while answer[0] != LOST:
            method, arguments = channel.receive()
            answer = _guarded(lambda: desk.answer(method, arguments))  # noqa: B023 - called now
            channel.send(answer)
    except WorkerDiedError:
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def _opened(factory: str) -> Device:
    module, _, name = factory.partition(":")
    device: Device = getattr(import_module(module), name)()
    return device


def _guarded(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return ANSWERED, call()
    except TirgymError as error:
        return FAILED, error
    except Exception as error:  # noqa: BLE001 - torch and the driver raise anything
        traceback.print_exc()
        said = str(error).strip().partition("\n")[0][:300]
        return LOST, f"{type(error).__name__}: {said}" if said else type(error).__name__
