"""`DeviceEvaluator`: kernels of one workload on a device: gate first, then a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tirgym.errors import CompileFailedError, DeviceError
from tirgym.harness.buffers import Poison
from tirgym.harness.evaluation import (
    Evaluation,
    GateReport,
    Level,
    Measurement,
    TimingStats,
)
from tirgym.harness.gate import GateOutcome, InputSet, check, run_gate
from tirgym.harness.status import Status
from tirgym.harness.timing import Call, Paired, TimingPlan, interleave, stats_of
from tirgym.harness.triton.device.bench import DeviceBench
from tirgym.harness.triton.device.device import Device, Place, Runnable
from tirgym.harness.triton.input_sets import InputSets
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import tensors

__all__ = ["DEVICE_PLAN", "DeviceEvaluator", "VendorTime", "Versus"]

DEVICE_PLAN = TimingPlan(
    sample_s=4e-4, budget_s=0.08, min_pairs=7, max_pairs=25, noise_limit=0.1, extensions=2
)
ROTATION = 2
"""sets of buffers that calls take in turn"""
SLOW = 30.0
"""a candidate is cut off if its fastest call takes this many times the default's, …"""
SLOW_FLOOR_S = 0.05
"""… and at least this long"""
_RESOURCES = (2, 701)
"""CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"""


@dataclass(frozen=True, slots=True)
class VendorTime:
    """The vendor's kernel beside ours, interleaved."""

    ours: TimingStats
    vendor: TimingStats
    ratio: float
    """time of the vendor / ours: above 1 ours is faster"""
    interval: tuple[float, float]
    """95 % bootstrap interval of `ratio`"""
    noisy: bool
    deviation: str
    """"" where the vendor's result passes our gate on normal inputs, else how it does not"""
    timer: str


@dataclass(frozen=True, slots=True)
class Versus:
    """Two binaries of one workload, interleaved."""

    ratio: float | None
    """time of the first / time of the second: above 1 the second is faster; None unless both are right"""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of `ratio`"""
    same_code: bool
    """one machine code, so that the ratio is exactly 1"""
    message: str = ""
    noisy: bool = False


class _DeviceTimer:
    """`Timer` over `Device.elapsed_s`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.name = f"{device.timer}, {ROTATION} sets of buffers in turn"

    def time(self, call: Call, calls: int) -> float:
        """Seconds for one call."""
        return self._device.elapsed_s(lambda: call.function(*call.arguments), calls)


class DeviceEvaluator:
    """Judges and times binaries of one workload against its kernel with the default configuration.

    That one is trusted only as far as it passes its own gate (`InputSets`).
    """

    def __init__(
        self, device: Device, default: Runnable, workload: Workload, secret: bytes
    ) -> None:
        self.device, self.workload, self.default = device, workload, default
        self._default = self.function(default)
        self._bench, self._trusted = (DeviceBench(device, workload) for _ in range(2))
        self._inputs = InputSets(workload, self._trusted, self._default, secret=secret)
        self._kept: dict[Regime, InputSet] = {}
        self._timer = _DeviceTimer(device)
        self._default_s = 0.0
        self._intact = False
        """the timed sets of buffers hold normal inputs"""
        self._sides: tuple[list[DeviceBench], list[DeviceBench]] = ([], [])

    def function(self, binary: Runnable) -> Callable[..., None]:
        """A function of all tensors' places, inputs first, that launches `binary`."""
        loaded = self.device.load(binary)
        names = [tensor.name for group in tensors(self.workload) for tensor in group]

        def launch(*places: Place) -> None:
            self.device.launch(loaded, dict(zip(names, places, strict=True)))

        return launch

    @property
    def nbytes(self) -> int:
        """Host memory, and the most that is held of the device's."""
        benches = [self._bench, self._trusted, *self._sides[0], *self._sides[1]]
        return sum(b.nbytes for b in benches) + sum(s.nbytes for s in self._kept.values())

    def set_of(self, regime: Regime) -> InputSet:
        """Inputs of `regime`, drawn once."""
        if regime not in self._kept:
            self._kept[regime] = self._inputs.draw(regime, "device")
        return self._kept[regime]

    # --- correctness ------------------------------------------------------------------------------

    def check(self, binary: Runnable, regimes: Sequence[Regime]) -> tuple[Status, GateReport]:
        """The gate's verdict in `regimes`; raises DeviceError."""
        outcome = self._gate(self.function(binary), regimes)
        return outcome.status, outcome.report

    def _gate(self, function: Callable[..., None], regimes: Sequence[Regime]) -> GateOutcome:
        sets = [self.set_of(regime) for regime in regimes]
        if self._default_s == 0.0:
            self._bench.run(self._default, sets[0], Poison.NAN)  # loads its code
            self._default_s = self._bench.run(self._default, sets[0], Poison.NAN)
        return run_gate(self._bench, function, sets, max(SLOW_FLOOR_S, SLOW * self._default_s))

    # --- times ------------------------------------------------------------------------------------

    def evaluate(self, binary: Runnable, regimes: Sequence[Regime], floor_us: float) -> Evaluation:
        """Gate in `regimes`, time beside the default, gate on what the timed calls left.

        A time below `floor_us` is SUSPECT.
        """
        key = binary.code_key
        try:
            function = self.function(binary)
            outcome = self._gate(function, regimes)
            if outcome.status is not Status.PASSED:
                slow = SLOW if outcome.status is Status.TOO_SLOW else None
                report = outcome.report
                return Evaluation(
                    outcome.status, key, key, None, report, report.failure, slowdown_limit=slow
                )
            paired = self._paired(function, self._default)
        except CompileFailedError as error:
            return Evaluation(Status.COMPILE_ERROR, key, key, message=str(error))
        except DeviceError as error:
            refused = Status.OUT_OF_MEMORY if error.code in _RESOURCES else Status.CRASH
            return Evaluation(refused, key, key, message=str(error))
        left = self._left()
        if left:
            report = GateReport(outcome.report.regimes, 0.0, False, left)
            return Evaluation(Status.WRONG_RESULT, key, key, None, report, f"timed calls: {left}")
        measurement = self._measurement(paired)
        status, message = _plausible(measurement, paired, floor_us)
        number = measurement if status is Status.PASSED else None
        return Evaluation(status, key, key, number, outcome.report, message, Level.TRAINING)

    def compare(self, first: Runnable, second: Runnable, regimes: Sequence[Regime]) -> Versus:
        """Both gated in `regimes`, then interleaved; the ratio is time of the first / time of the second.

        No ratio unless both pass before and after.
        """
        functions = [self.function(binary) for binary in (first, second)]
        for function in functions:
            outcome = self._gate(function, regimes)
            if outcome.status is not Status.PASSED:
                return Versus(None, None, False, outcome.report.failure or str(outcome.status))
        if first.code_key == second.code_key:
            return Versus(1.0, (1.0, 1.0), True)
        paired = self._paired(functions[1], functions[0])
        left = self._left()
        if left:
            return Versus(None, None, False, f"timed calls: {left}")
        return Versus(paired.ratio, paired.interval, False, "", paired.noisy)

    def against_vendor(self, binary: Runnable) -> VendorTime | None:
        """`binary`, which passed before, beside the vendor's kernel; None where there is none."""
        bind = self.device.vendor(self.workload.kernel.name)
        if bind is None:
            return None
        self._load_sides()
        calls = [
            bind(*(self.device.tensor(place) for place in bench.places)) for bench in self._sides[1]
        ]
        paired = self._interleave(_turns(self.function(binary), self._sides[0]), _in_turn(calls))
        deviation = self._left() or self._vendor_left(calls[0])
        ours, theirs = stats_of(paired.candidate), stats_of(paired.baseline)
        return VendorTime(
            ours, theirs, paired.ratio, paired.interval, paired.noisy, deviation, self._timer.name
        )

    def tensors(self) -> list[Any]:
        """Tensors for torch with normal inputs, in the order inputs, outputs."""
        self._load_sides()
        return [self.device.tensor(place) for place in self._sides[0][0].places]

    def _paired(self, candidate: Callable[..., None], baseline: Callable[..., None]) -> Paired:
        self._load_sides()
        return self._interleave(_turns(candidate, self._sides[0]), _turns(baseline, self._sides[1]))

    def _interleave(self, candidate: Callable[[], Any], baseline: Callable[[], Any]) -> Paired:
        calls = Call(candidate), Call(baseline)
        for call in calls:
            self._timer.time(call, ROTATION)  # loads code, fills torch's caches
        first, second = (self._timer.time(call, ROTATION) for call in calls)
        return interleave(*calls, (first, second), DEVICE_PLAN, self._timer)

    def _load_sides(self) -> None:
        """Normal inputs for the candidate (first) and the other side; the candidate's outputs poisoned."""
        if not self._intact:
            normal = self.set_of(Regime.NORMAL)
            for side in self._sides:
                side += [
                    DeviceBench(self.device, self.workload) for _ in range(ROTATION - len(side))
                ]
                for bench in side:
                    bench.prepare(normal, Poison.NAN)
                    bench.upload()
        for bench in self._sides[0]:
            bench.renew_outputs()
        self._intact = True

    def _left(self) -> str:
        """What is wrong with what timed calls of the candidate left; "" if nothing."""
        first: tuple[bytes, ...] | None = None
        for bench in self._sides[0]:
            bench.download()
            normal = self.set_of(Regime.NORMAL)
            failure = bench.damage(normal)
            if not failure and (first is None or not bench.same_bits(first)):
                failure, _, _ = check(bench, normal)
            if failure:
                self._intact = False
                return failure
            first = bench.bits()
        return ""

    def _vendor_left(self, call: Callable[[], Any]) -> str:
        bench = self._sides[1][0]
        (out,) = bench.places[len(bench.inputs) :]
        self.device.keep(call(), out)
        bench.download()
        failure, _, _ = check(bench, self.set_of(Regime.NORMAL))
        return failure

    def _measurement(self, paired: Paired) -> Measurement:
        return Measurement(
            stats_of(paired.candidate),
            stats_of(paired.baseline),
            paired.ratio,
            paired.interval,
            cache="cold",
            timer=self._timer.name,
        )


def _plausible(measurement: Measurement, paired: Paired, floor_us: float) -> tuple[Status, str]:
    if measurement.latency_us < floor_us:
        found = f"{measurement.latency_us:.2f} µs, below the floor of {floor_us:.2f} µs"
        return Status.SUSPECT, found
    if paired.noisy or not math.isfinite(paired.ratio):
        return Status.NOISY, f"interval {paired.interval[0]:.3f} to {paired.interval[1]:.3f}"
    return Status.PASSED, ""


def _turns(function: Callable[..., None], benches: Sequence[DeviceBench]) -> Callable[[], Any]:
    """A call on the next set of buffers each time."""

    def bound(places: tuple[Place, ...]) -> Callable[[], None]:
        return lambda: function(*places)

    return _in_turn([bound(bench.places) for bench in benches])


def _in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    place = -1

    def call() -> None:
        nonlocal place
        place = (place + 1) % len(calls)
        calls[place]()

    return call
