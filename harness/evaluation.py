"""`Evaluation` and `Measurement`: what an evaluator answers. No number without a pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tirgym.errors import InvalidValueError
from tirgym.harness.status import Status

__all__ = [
    "Comparison",
    "Evaluation",
    "GateReport",
    "Level",
    "Measurement",
    "PhaseTimes",
    "TimingStats",
    "WitnessReport",
]


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
    clock_mhz: tuple[int, int] | None = None
    """of the device right before and after the timing; None where it does not tell"""

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
    """in the compiler, JIT linking included"""
    gate_s: float = 0.0
    timing_s: float = 0.0
    total_s: float = 0.0
    gate_runs_s: float = 0.0
    """part of `gate_s` inside the kernel"""
    timed_runs_s: float = 0.0
    """part of `timing_s` inside the two kernels"""
    waited_s: float = 0.0
    """for its turn: for another program, or another process on this machine, to end its timing"""

    @property
    def overhead_s(self) -> float:
        """Everything outside compiler, gate kernel runs, timed kernel runs, and waiting."""
        spent = self.build_s + self.gate_runs_s + self.timed_runs_s + self.waited_s
        return max(0.0, self.total_s - spent)


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
    replayed_from: str = ""
    """fingerprint of the machine whose stored verdict this is, if an evaluator that replays a store
    answered; "" for one that was made, or may be made again, here"""
    sessions: tuple[float, ...] = ()
    """speedups of the sessions of `evaluate_in_sessions` that could be measured, in the order of
    measuring; () for one. With status NOISY they were too few: what was seen, not a claim"""

    def __post_init__(self) -> None:
        if self.measurement is not None and self.status is not Status.PASSED:
            raise InvalidValueError("evaluation with a measurement", self.status, "status passed")
        if self.status is Status.PASSED and (self.measurement is None or self.gate is None):
            raise InvalidValueError("passed evaluation", self, "a measurement and a gate report")
        if self.sessions and self.status not in (Status.PASSED, Status.NOISY):
            raise InvalidValueError("evaluation with sessions", self.status, "passed or noisy")

    @property
    def passed(self) -> bool:
        """Whether the program is correct and timed."""
        return self.status is Status.PASSED

    @property
    def speedup(self) -> float | None:
        """Speedup over naive, or None without a pass."""
        return self.measurement.speedup if self.measurement else None

    @property
    def speedup_ci(self) -> tuple[float, float] | None:
        """Interval of `speedup`, or None without a pass."""
        return self.measurement.speedup_ci if self.measurement else None

    @property
    def stats(self) -> TimingStats | None:
        """Times of the program, or None without a pass."""
        return self.measurement.candidate if self.measurement else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A paired A/B of two programs of one workload; the ratio exists only if both passed in full."""

    first: Evaluation
    second: Evaluation
    ratio: float | None = None
    """time of the first / time of the second: above 1 the second is faster"""
    interval: tuple[float, float] | None = None
    """95 % bootstrap interval of `ratio`"""
    same_code: bool = False
    """both are the same machine code, so that the ratio is exactly 1"""
    noisy: bool = False

    def __post_init__(self) -> None:
        if self.ratio is not None and self.interval is None:
            raise InvalidValueError("comparison with a ratio", self.interval, "an interval")

    @property
    def verdict(self) -> str:
        """ "faster", "slower" (the second against the first), "no difference shown", "invalid"."""
        if self.interval is None:
            return "invalid"
        if self.interval[0] > 1.0:
            return "faster"
        return "slower" if self.interval[1] < 1.0 else "no difference shown"


@dataclass(frozen=True, slots=True)
class WitnessReport:
    """What a program's rejection comes from, by building the same IR in other ways."""

    candidate: str
    """failure of the program as built for its target, "" if it passed"""
    witnesses: tuple[tuple[str, str], ...]
    """name and failure ("" if right) of each witness, on the inputs that the candidate failed on"""

    @property
    def miscompile(self) -> bool:
        """The candidate is wrong where the same IR, built plainly, is right: the compiler's fault."""
        return bool(self.candidate) and any(not failure for _, failure in self.witnesses)

    @property
    def wrong_schedule(self) -> bool:
        """The candidate is wrong and so is every witness: the IR itself means something else."""
        return bool(self.candidate) and all(failure for _, failure in self.witnesses)
