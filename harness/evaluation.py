"""`Evaluation` and `Measurement`: what an evaluator answers. No number without a pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tirgym.errors import InvalidValueError
from tirgym.harness.status import Status

__all__ = ["Evaluation", "GateReport", "Level", "Measurement", "PhaseTimes", "TimingStats"]


class Level(StrEnum):
    """How thorough an evaluation is."""

    TRAINING = "training"
    """pooled secret inputs, a few regimes in rotation, timed against an anchor"""
    FULL = "full"
    """fresh seeds, every regime, interleaved with the naive program"""


@dataclass(frozen=True, slots=True)
class TimingStats:
    """Time of one call of one binary, in µs, over interleaved samples."""

    lower_quartile_us: float
    """the estimate that ratios use"""
    median_us: float
    p95_us: float
    p99_us: float
    samples: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Speedup of a candidate over the naive program of the same workload, target and threads."""

    candidate: TimingStats
    baseline: TimingStats
    """the program that the candidate was interleaved with: naive, or an anchor (see `anchor_ratio`)"""
    speedup: float
    """naive time / candidate time, from lower quartiles"""
    speedup_ci: tuple[float, float]
    """95 % bootstrap interval of `speedup`"""
    anchor_ratio: float = 1.0
    """naive time / baseline time; 1 when the baseline is the naive program itself"""
    cache: str = "hot"
    timer: str = "perf_counter_ns"
    reused: bool = False
    """taken from the store, since this machine code was measured before"""

    @property
    def latency_us(self) -> float:
        """Time of one call of the candidate, in µs."""
        return self.candidate.lower_quartile_us


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the correctness gate saw."""

    regimes: tuple[str, ...]
    """regimes that were run"""
    worst_error: float
    """max over elements of e/s, in units of the tolerance (1 = at the limit); 0 for exact kernels"""
    bit_identical: bool
    """every output equals the unscheduled program's bit for bit: a tripwire, not a verdict"""
    failure: str = ""
    """regime, output, element and values of the first failure"""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Wall seconds that one evaluation spent, by phase."""

    static_s: float = 0.0
    build_s: float = 0.0
    gate_s: float = 0.0
    timing_s: float = 0.0
    total_s: float = 0.0

    @property
    def overhead_s(self) -> float:
        """Everything outside compiler, gate and timed runs."""
        return max(0.0, self.total_s - self.build_s - self.gate_s - self.timing_s)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answer of an evaluator for one program. Refuses to exist with a number but no pass."""

    status: Status
    ir_key: str
    code_key: str = ""
    """hash of the emitted machine code, "" if it was never emitted"""
    measurement: Measurement | None = None
    gate: GateReport | None = None
    message: str = ""
    """one line: why it did not pass"""
    level: Level = Level.TRAINING
    phases: PhaseTimes = PhaseTimes()
    slowdown_limit: float | None = None
    """TOO_SLOW only: candidate time / naive time at which it was cut off"""

    def __post_init__(self) -> None:
        if self.measurement is not None and self.status is not Status.PASSED:
            raise InvalidValueError("evaluation with a measurement", self.status, "status passed")
        if self.status is Status.PASSED and (self.measurement is None or self.gate is None):
            raise InvalidValueError("passed evaluation", self, "a measurement and a gate report")

    @property
    def passed(self) -> bool:
        """Whether the program is correct and timed."""
        return self.status is Status.PASSED

    @property
    def speedup(self) -> float | None:
        """Speedup over naive, or None without a pass."""
        return self.measurement.speedup if self.measurement else None
