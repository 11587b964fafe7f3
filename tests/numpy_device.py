"""A device for tests: TTGIR executed on NumPy, NumPy as the vendor, times from a hash.

Its process opens one of the functions below; kernels that misbehave do so by name or configuration.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from tirgym.errors import CompileFailedError, DeviceError
from tirgym.harness.triton.appraisal import Appraisal, binary_of
from tirgym.harness.triton.compiling import compile_here
from tirgym.harness.triton.device.device import Binary, DeviceFacts, Place, Runnable, Tuned
from tirgym.harness.triton.device.worker import DeviceDesk
from tirgym.harness.triton.executor.executable import Executable
from tirgym.harness.triton.executor.faults import Fault
from tirgym.harness.triton.request import CompileRequest
from tirgym.kernels_suite.kernel import Array
from tirgym.kernels_suite.triton.source import Config, TritonSource

VENDOR_S = 2e-5
COPY_BYTES_PER_S = 1e12


def softmax(x: Array, out: Array) -> Callable[[], Array]:
    def call() -> Array:
        power: Array = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        share: Array = power / power.sum(axis=1, keepdims=True)
        return share

    return call


VENDOR: dict[str, Callable[..., Callable[[], Array]]] = {
    "softmax": softmax,
    "add": lambda a, b, out: lambda: a + 2.0 * b,
}
"""Sums of this vendor are wrong."""


def synthetic_s(key: str) -> float:
    """10 to 20 µs, the same for the same machine code."""
    return 1e-5 * (1.0 + int(key[:4], 16) / 65536)


class NumpyDevice:
    """Right in everything."""

    timer = "synthetic"
    facts = DeviceFacts("NumPy", "sm_90", 1, 1 << 30, 1 << 20, "none", {"numpy": np.__version__})

    def __init__(self) -> None:
        self._last_s: float | None = None

    def allocate(self, nbytes: int) -> Array:
        return np.zeros(nbytes, np.uint8)

    def upload(self, memory: Array, content: Array) -> None:
        memory[: content.nbytes] = content

    def download(self, memory: Array, into: Array) -> None:
        into[...] = memory[: into.nbytes]

    def synchronize(self) -> None:
        pass

    def _array(self, place: Place) -> Array:
        body: Array = place.memory[place.offset : place.offset + place.tensor.nbytes]
        return body.view(place.tensor.dtype).reshape(place.tensor.shape)

    def tensor(self, place: Place) -> Array:
        return self._array(place)

    def load(self, binary: Runnable) -> tuple[Binary, Executable]:
        assert isinstance(binary, Binary)
        return binary, Executable.of(binary.texts["ttgir"])

    def launch(self, loaded: tuple[Binary, Executable], places: Mapping[str, Place]) -> None:
        binary, executable = loaded
        given = [a for a in binary.launch.arguments if a.type != "constexpr"]
        arguments = [
            (str(a.value), self._array(places[str(a.value)])) if a.is_pointer else a.value
            for a in given
        ]
        try:
            executable.run(binary.launch.grid, arguments)
        except Fault as fault:
            raise RuntimeError(
                f"CUDA error: an illegal memory access was encountered: {fault}"
            ) from fault
        self._last_s = synthetic_s(binary.code_key)

    def elapsed_s(self, call: Callable[[], Any], calls: int) -> float:
        self._last_s = None
        call()
        return VENDOR_S if self._last_s is None else self._last_s

    def copier(self, nbytes: int) -> Callable[[], Any]:
        def copy() -> None:
            self._last_s = 2.0 * nbytes / COPY_BYTES_PER_S

        return copy

    def vendor(self, kernel: str) -> Callable[..., Callable[[], Any]] | None:
        return VENDOR.get(kernel)

    def keep(self, result: Array, place: Place) -> None:
        self._array(place)[...] = result

    def autotune(
        self, source: TritonSource, binary: Binary, configs: Sequence[Config], tensors: list[Any]
    ) -> Tuned:
        return Tuned(
            dict(configs[-1]), tuple(10.0 + n for n in range(len(configs))), "the last one"
        )

    def clock_mhz(self) -> int | None:
        return 1980


class TroubledDevice(NumpyDevice):
    """Softmax is wrong, gelu hangs, transpose ends the process; "refused" is refused, "wrong" is wrong
    only while it is timed; the autotuner raises."""

    def launch(self, loaded: tuple[Binary, Executable], places: Mapping[str, Place]) -> None:
        binary, _ = loaded
        super().launch(loaded, places)
        if binary.name == "softmax":
            self._array(places["out"]).flat[-1] += 0.25
        elif binary.name == "gelu":
            time.sleep(600)
        elif binary.name == "transpose":
            os.abort()
        elif binary.name == "refused":
            raise DeviceError("cuLaunchKernel", 701, "too many resources requested for launch")
        elif binary.name == "wrong" and self.timing:
            self._array(places["out"]).flat[0] = 0.0

    timing = False

    def elapsed_s(self, call: Callable[[], Any], calls: int) -> float:
        self.timing = True
        try:
            return super().elapsed_s(call, calls)
        finally:
            self.timing = False

    def autotune(self, *_: Any) -> Tuned:
        raise RuntimeError("no C compiler for Triton's launcher")


def open_device() -> NumpyDevice:
    return NumpyDevice()


def open_full() -> NumpyDevice:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2 MiB\nand more words")


def open_troubled() -> NumpyDevice:
    return TroubledDevice()


class HereDesk:
    """In the place of `DeviceProcess`: the same desk in this process."""

    lost = 0

    def __init__(self) -> None:
        self._desk = DeviceDesk(NumpyDevice(), b"tests" * 4)

    def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        assert timeout_s > 0
        return getattr(self._desk, method)(*arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class QuickPool:
    """In the place of `CompilePool`: compiles here, down to TTGIR, whose text stands for the machine
    code; what it predicts is what the device answers.

    With trouble, rope does not compile, and of several candidates the two that are predicted to be
    fastest are one that the device refuses and one that is wrong while it is timed.
    """

    def __init__(self, trouble: bool = False) -> None:
        self._trouble = trouble

    def call_many(self, function: str, arguments: Sequence[CompileRequest]) -> list[Any]:
        assert function.endswith(":appraise")
        answers = [self._appraised(request) for request in arguments]
        if self._trouble and len(answers) > 2:
            order = sorted(range(len(answers)), key=lambda n: answers[n].predicted_us)
            for place, name in zip(order[:2], ("refused", "wrong"), strict=True):
                bad = replace(answers[place].binary, name=name)
                answers[place] = replace(answers[place], binary=bad)
        return answers

    def _appraised(self, request: CompileRequest) -> Any:
        if self._trouble and "rope" in request.workload:
            return CompileFailedError("ptx", "ptxas: too much of everything")
        compiled = compile_here(request.changed(until="ttgir"))
        image, name = compiled.texts["ttgir"].encode(), request.source.name
        binary = replace(binary_of(request, compiled), image=image, name=name)
        return Appraisal(binary, 1e6 * synthetic_s(binary.code_key), 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
