"""`Workbench`: everything that a worker keeps warm for one workload, and what it does with it."""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tirgym.errors import EvaluationError
from tirgym.harness.backend import Build, backend
from tirgym.harness.buffers import GuardedBuffer, Poison
from tirgym.harness.evaluation import GateReport, Level, Measurement
from tirgym.harness.file_lock import FileLock
from tirgym.harness.gate import Bench, GateOutcome, InputSet, check, run_gate
from tirgym.harness.judge import Expected, Verdict, judge, judge_with
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.timing import (
    ANCHOR_PLAN,
    Call,
    Paired,
    Timer,
    TimingPlan,
    default_timer,
    interleave,
    stats_of,
)
from tirgym.kernels_suite.kernel import Regime, Workload
from tirgym.kernels_suite.problem import make_inputs, reference_of, scale_of, tensors, terms_of

__all__ = ["Anchor", "Outcome", "Rules", "Workbench"]

POOL_ROUNDS = 48
"""Training evaluations that one pool of secret inputs serves before it is drawn again."""
POOL_BYTES = 512 << 20
ROTATING = (Regime.TIES, Regime.TINY, Regime.MIXED, Regime.HUGE, Regime.SPARSE, Regime.EXTREME)
"""Training: two of these at a time, in turn, besides RAMP and NORMAL (the timed inputs)."""
TRAINING_RERUNS = 2
"""Training: sets that are run a second time, one with each poison besides NaN; the timed calls and
what they leave repeat the NORMAL set too."""
LONG_S = 3e-3
SHARP = 0.05
"""A slow candidate is timed against an anchor shorter than LONG_S whose ratio is known this well,
instead of a baseline as slow as itself."""
PROMOTION = 2.0
"""A candidate this much faster than the baseline it was timed against is measured in full against
naive, and becomes an anchor …"""
ANCHOR_WIDTH = 0.5
"""… unless half the interval of its ratio is wider than this share of it. An anchor's uncertainty is
part of the interval of everything that is timed against it, and the same for all of it."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A checked program with its speedup over naive, measured in full; slow naive programs need not
    be run again for every candidate."""

    module_json: str
    ratio: float
    """naive time / anchor time"""
    half_width: float
    """half the 95 % interval of `ratio`, as a share of it"""
    seconds: float
    """for one call"""


@dataclass(frozen=True)
class Rules:
    """What holds for every evaluation of one workbench."""

    secret: bytes
    seed: int
    plans: dict[Level, TimingPlan]
    timer: Timer | None
    """None: the default for the target's number of threads"""
    lock_path: str
    """timings on one machine hold this file lock, so that they never overlap"""
    slowdown_limit: float
    """TOO_SLOW beyond this multiple of the naive time …"""
    slow_floor_s: float
    """… and this time"""
    bitwise: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker answers about one binary."""

    status: Status
    report: GateReport | None = None
    measurement: Measurement | None = None
    message: str = ""
    slowdown: float | None = None
    anchor: Anchor | None = None
    """set when the binary became an anchor; its module_json is left empty"""
    gate_s: float = 0.0
    gate_runs_s: float = 0.0
    waited_s: float = 0.0
    timing_s: float = 0.0
    timed_runs_s: float = 0.0
    tainted: bool = False
    """the binary wrote where it must not; the worker's memory cannot be trusted any more"""


def smoke_test(function: Callable[..., Any]) -> None:
    """Call a kernel of 64 float32 in, 64 out, each plus 1; raises EvaluationError if it is wrong."""
    import tvm

    given, got = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tensor = tvm.runtime.tensor(got)
    function(tvm.runtime.tensor(given), tensor)
    if not np.array_equal(tensor.numpy(), given + 1):
        raise EvaluationError("the compiler of this machine adds 1 wrongly")


class Workbench:
    """One workload on one target: buffers, unscheduled binary, input sets, anchors."""

    def __init__(self, workload: Workload, naive_json: str, target: Target, rules: Rules) -> None:
        self.workload, self.target, self.rules = workload, target, rules
        self.timer = rules.timer or default_timer(target.num_threads)
        ins, outs = tensors(workload)
        count = len(ins)
        inputs = [GuardedBuffer(t, i) for i, t in enumerate(ins)]
        kernel = workload.kernel
        self.bench, self.baseline = (
            Bench(
                inputs,
                [GuardedBuffer(t, count + i) for i, t in enumerate(outs)],
                kernel.compare,
                rules.bitwise,
            )
            for _ in range(2)
        )
        build = self.build(naive_json)
        self.naive_key = build.code_key
        self.naive = Call(build.load(), self.baseline.arguments())
        self.naive_s = math.inf
        self.terms = terms_of(workload)
        self.pool: OrderedDict[tuple[Regime, int], InputSet] = OrderedDict()
        self.builds: OrderedDict[str, Build] = OrderedDict()
        self.loaded: dict[str, Call] = {}
        self.anchors: list[Anchor] = []
        self.failing: InputSet | None = None
        """inputs that the last program failed on"""

    def build(self, module_json: str) -> Build:
        """Compile for this bench's target."""
        return backend(self.target.backend).build(module_json, self.target)

    # --- input sets -------------------------------------------------------------------------

    def rng(self, regime: Regime, purpose: str) -> np.random.Generator:
        """Fresh generator from the secret, the public seed, the workload, and what it is for."""
        parts = (self.rules.seed, self.workload.uri, str(regime), purpose)
        digest = hashlib.sha256(self.rules.secret + repr(parts).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, np.uint32))

    def draw(self, regime: Regime, purpose: str) -> InputSet:
        """Inputs, references, scales and the unscheduled program's outputs.

        Raises EvaluationError if the unscheduled program fails its own gate.
        """
        inputs = make_inputs(self.workload, self.rng(regime, purpose), regime)
        references = reference_of(self.workload, inputs)
        scales = scale_of(self.workload, inputs) or (None,) * len(references)
        raw = InputSet(regime, inputs, ())
        seconds = self.baseline.run(self.naive.function, raw, Poison.NAN)
        if regime is Regime.NORMAL:
            self.naive_s = min(self.naive_s, seconds)
        expected = []
        for buffer, reference, scale in zip(self.baseline.outputs, references, scales, strict=True):
            name, own = buffer.tensor.name, buffer.array.copy()
            expected.append(Expected.of(name, reference, own, self.terms, scale))
        return self.require_sound(InputSet(regime, inputs, tuple(expected)))

    def require_sound(self, made: InputSet) -> InputSet:
        """The unscheduled program must be right before anything is judged against it; answers the
        set with its verdicts."""
        verdicts: list[Verdict] = []
        failure = self.baseline.damage(made)
        if not failure:
            own = tuple(e.unscheduled for e in made.expected)
            compare = self.workload.kernel.compare
            if compare is not None:
                verdicts = judge_with(compare, made.inputs, own, made.expected)
            else:
                verdicts = [judge(y, e) for y, e in zip(own, made.expected, strict=True)]
            failure = next((v.failure for v in verdicts if v.failure), "")
        if failure:
            raise EvaluationError(
                f"the unscheduled program of {self.workload} fails its own gate: "
                f"{made.regime}: {failure}; its build and its reference disagree"
            )
        known = zip(made.expected, verdicts, strict=True)
        return replace(made, expected=tuple(replace(e, own=v) for e, v in known))

    def pooled(self, regime: Regime, epoch: int) -> InputSet:
        """A set of the current pool; older pools and the least used sets are dropped."""
        key = (regime, epoch)
        if key not in self.pool:
            for old in [k for k in self.pool if k[1] != epoch]:
                del self.pool[old]
            made = self.draw(regime, f"pool {epoch}")
            held = sum(s.nbytes for s in self.pool.values())
            while self.pool and held + made.nbytes > POOL_BYTES:
                held -= self.pool.popitem(last=False)[1].nbytes
            self.pool[key] = made
        self.pool.move_to_end(key)
        return self.pool[key]

    def sets(self, level: Level, number: int) -> tuple[list[InputSet], InputSet]:
        """Sets for the gate, and the NORMAL set for timing."""
        if level is Level.FULL:
            fresh = [self.draw(regime, f"full {number}") for regime in Regime]
            return fresh, next(s for s in fresh if s.regime is Regime.NORMAL)
        epoch = number // POOL_ROUNDS
        pair = [ROTATING[(2 * number + i) % len(ROTATING)] for i in range(2)]
        timed = self.pooled(Regime.NORMAL, epoch)
        return [self.pooled(r, epoch) for r in (Regime.RAMP, *pair)], timed

    def normal_set(self) -> InputSet:
        """The NORMAL set of the current pool."""
        epoch = max((epoch for _, epoch in self.pool), default=0)
        return self.pooled(Regime.NORMAL, epoch)

    def time_naive(self) -> None:
        """First rough seconds of the unscheduled program, on inputs that are needed anyway."""
        given = self.normal_set()
        self.naive_s = min(self.naive_s, self.baseline.run(self.naive.function, given, Poison.NAN))

    # --- evaluation -------------------------------------------------------------------------

    def function(self, code_key: str) -> Callable[..., Any]:
        """The loaded binary of an earlier `build`."""
        return self.builds[code_key].load()

    def remember(self, build: Build) -> None:
        """Keep a build for the next request; only the newest few."""
        self.builds[build.code_key] = build
        while len(self.builds) > 4:
            self.builds.popitem(last=False)

    def evaluate(
        self, code_key: str, level: Level, number: int, floor_us: float, note: Callable[[str], None]
    ) -> Outcome:
        """Gate, timing, gate on what the timed loop left. Notes its phases."""
        note("inputs")
        started, before_s = time.perf_counter(), self.baseline.runs_s
        sets, timed = self.sets(level, number)
        drawn_s = self.baseline.runs_s - before_s
        function = self.function(code_key)
        note("gate")
        outcome, gate = self.gate(function, sets, level)
        if gate.status is not Status.PASSED:
            outcome = replace(outcome, gate_s=time.perf_counter() - started)
        else:
            outcome = self.timed(code_key, function, level, timed, gate, floor_us, note, started)
        return replace(outcome, gate_runs_s=outcome.gate_runs_s + drawn_s)

    def gate(
        self,
        function: Callable[..., Any],
        sets: Sequence[InputSet],
        level: Level = Level.FULL,
    ) -> tuple[Outcome, GateOutcome]:
        """The gate's verdict, as it is answered and with its details."""
        slow_s = max(self.rules.slow_floor_s, self.rules.slowdown_limit * self.naive_s)
        reruns = TRAINING_RERUNS if level is Level.TRAINING else None
        gate = run_gate(self.bench, function, sets, slow_s, reruns)
        self.failing = gate.failing
        outcome = Outcome(
            gate.status, gate.report, message=gate.report.failure, gate_runs_s=gate.runs_s
        )
        if gate.status is Status.TOO_SLOW:
            slowdown = slow_s / self.naive_s
            text = f"one call took {gate.seconds * 1e3:.3g} ms, over {slowdown:.3g}x the naive time"
            outcome = replace(outcome, message=text, slowdown=slowdown)
        return outcome, gate

    def timed(
        self,
        code_key: str,
        function: Callable[..., Any],
        level: Level,
        given: InputSet,
        gate: GateOutcome,
        floor_us: float,
        note: Callable[[str], None],
        started: float,
    ) -> Outcome:
        """Time a program that passed the gate, and judge what its timed calls left behind."""
        candidate = Call(function, self.bench.arguments())
        call_s = self.bench.run(function, given, Poison.NAN)
        estimate, gate_runs_s = min(gate.seconds, call_s), gate.runs_s + call_s
        first = self.bench.bits()
        anchored = level is Level.TRAINING and code_key != self.naive_key
        anchor = self.nearest(estimate) if anchored else None
        base = self.naive if anchor is None else self.call_of(anchor)
        self.bench.prepare(given, Poison.HIGH)
        gate_s = time.perf_counter() - started
        note("lock")
        with FileLock(self.rules.lock_path) as lock:
            note("timing")
            begun = time.perf_counter()
            plan = self.rules.plans[level]
            base_s = self.naive_s if anchor is None else anchor.seconds
            paired = self.interleave(candidate, base, (estimate, base_s), plan)
            runs_s, promoted = paired.runs_s, False
            if level is Level.TRAINING and paired.ratio >= PROMOTION:
                pair = (estimate, self.naive_s)
                full = self.interleave(candidate, self.naive, pair, ANCHOR_PLAN)
                runs_s += full.runs_s
                if full.half_width <= ANCHOR_WIDTH:
                    paired, anchor, plan, promoted = full, None, ANCHOR_PLAN, True
        timing_s = time.perf_counter() - begun
        failure, worst, identical = check(self.bench, given)
        status, message = Status.PASSED, ""
        if failure:
            status, message = Status.WRONG_RESULT, f"after timing: {failure}"
        elif not self.bench.same_bits(first):
            status = Status.FLAKY
            message = f"{given.regime}: the timed calls left other bits than the first call"
        report = GateReport(
            tuple(dict.fromkeys((*gate.report.regimes, str(given.regime)))),
            max(gate.report.worst_error, worst),
            gate.report.bit_identical and identical,
            message,
        )
        measurement = self.measurement(paired, anchor, code_key)
        if status is Status.PASSED:
            status, message = _plausible(paired, measurement, floor_us, plan)
        made = None
        if promoted and status in (Status.PASSED, Status.NOISY):
            made = Anchor("", paired.ratio, paired.half_width, measurement.latency_us * 1e-6)
        kept = measurement if status is Status.PASSED else None
        gate_s += time.perf_counter() - begun - timing_s
        return Outcome(
            status,
            report,
            kept,
            message,
            None,
            made,
            gate_s,
            gate_runs_s,
            lock.waited_s,
            timing_s,
            runs_s,
        )

    def interleave(
        self, candidate: Call, base: Call, estimates: tuple[float, float], plan: TimingPlan
    ) -> Paired:
        return interleave(candidate, base, estimates, plan, self.timer)

    def nearest(self, seconds: float) -> Anchor | None:
        """The anchor closest in time, None for the naive program.

        Where that would be a long baseline and a sharp shorter one is there, the closest of those.
        """
        choices: list[tuple[float, Anchor | None]] = [(self.naive_s, None)]
        choices += [(a.seconds, a) for a in self.anchors]
        closest = _closest(choices, seconds)
        if closest[0] > LONG_S:
            sharp = [c for c in choices if c[1] and c[1].half_width <= SHARP and c[0] <= LONG_S]
            closest = _closest(sharp, seconds) if sharp else closest
        return closest[1]

    def call_of(self, anchor: Anchor) -> Call:
        """The anchor's binary on the baseline's memory, built when first used."""
        if anchor.module_json not in self.loaded:
            function = self.build(anchor.module_json).load()
            self.loaded[anchor.module_json] = Call(function, self.baseline.arguments())
        return self.loaded[anchor.module_json]

    def measurement(self, paired: Paired, anchor: Anchor | None, code_key: str) -> Measurement:
        """Speedup over naive; the naive binary itself is exactly 1."""
        baseline = stats_of(paired.baseline)
        timer = self.timer.name
        if code_key == self.naive_key:
            return Measurement(baseline, baseline, 1.0, (1.0, 1.0), timer=timer)
        ratio, (low, high) = paired.ratio, paired.interval
        if anchor is not None:
            # Relative errors of the two ratios are independent: they add in quadrature.
            low = ratio * max(0.0, 1.0 - math.hypot(1.0 - low / ratio, anchor.half_width))
            high = ratio * (1.0 + math.hypot(high / ratio - 1.0, anchor.half_width))
        scale = 1.0 if anchor is None else anchor.ratio
        return Measurement(
            stats_of(paired.candidate),
            baseline,
            ratio * scale,
            (low * scale, high * scale),
            scale,
            timer=timer,
        )


def _closest(
    choices: Sequence[tuple[float, Anchor | None]], seconds: float
) -> tuple[float, Anchor | None]:
    return min(choices, key=lambda choice: abs(math.log(choice[0] / seconds)))


def _plausible(
    paired: Paired, measurement: Measurement, floor_us: float, plan: TimingPlan
) -> tuple[Status, str]:
    """SUSPECT, NOISY or PASSED."""
    if measurement.latency_us < floor_us:
        text = f"{measurement.latency_us:.3g} us is below the roofline floor of {floor_us:.3g} us"
        return Status.SUSPECT, text
    if paired.noisy:
        text = f"half the 95 % interval is {paired.half_width:.0%} of the ratio"
        return Status.NOISY, f"{text}, more than {plan.noise_limit:.0%}"
    return Status.PASSED, ""
