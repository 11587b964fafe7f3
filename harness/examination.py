"""`Examination`: one binary on a workbench: gate, timing, and the gate on what the timed loop left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tirgym.harness.anchoring import ANCHOR_WIDTH, PROMOTION, measurement_of, nearest
from tirgym.harness.buffers import Poison
from tirgym.harness.evaluation import GateReport, Level, Measurement
from tirgym.harness.file_lock import FileLock
from tirgym.harness.gate import check
from tirgym.harness.outcome import Anchor, Outcome
from tirgym.harness.status import Status
from tirgym.harness.timing import ANCHOR_PLAN, Call, Paired, TimingPlan, interleave
from tirgym.harness.workbench import Workbench

__all__ = ["Examination"]


class Examination:
    """Two stages, so that one program's gate can run while another is timed: `gate`, then `time`.

    `note` is told each phase as it begins.
    """

    def __init__(
        self,
        at: Workbench,
        code_key: str,
        level: Level,
        number: int,
        note: Callable[[str], None],
    ) -> None:
        self.at, self.code_key, self.level, self.number = at, code_key, level, number
        self.note = note

    def gate(self) -> Outcome:
        """The gate's verdict; PASSED is right, and not timed yet."""
        self.note("inputs")
        started, before_s = time.perf_counter(), self.at.baseline.runs_s
        sets, self.given = self.at.sets(self.level, self.number)
        drawn_s = self.at.baseline.runs_s - before_s
        self.function = self.at.function(self.code_key)
        self.note("gate")
        outcome, self.found = self.at.gate(self.function, sets, self.level)
        runs_s = self.found.runs_s + drawn_s
        if outcome.status is Status.PASSED:
            call_s = self.at.bench.run(self.function, self.given, Poison.NAN)
            self.first = self.at.bench.bits()
            self.estimate_s = min(self.found.seconds, call_s)
            runs_s += call_s
        gate_s = time.perf_counter() - started
        self.gated = replace(outcome, gate_s=gate_s, gate_runs_s=runs_s)
        return self.gated

    def time(self, floor_us: float) -> Outcome:
        """Time a program that passed the gate, and judge what its timed calls left behind."""
        self.note("gate")
        started = time.perf_counter()
        anchored = self.level is Level.TRAINING and self.code_key != self.at.naive_key
        anchor = nearest(self.at.anchors, self.at.naive_s, self.estimate_s) if anchored else None
        base = self.at.naive if anchor is None else self.at.call_of(anchor)
        self.at.bench.prepare(self.given, Poison.HIGH)
        self.note("lock")
        with FileLock(self.at.rules.lock_path) as lock:
            self.note("timing")
            clocks = [self.at.device.clock_mhz()]
            began = time.perf_counter()
            paired, anchor, plan = self._pair(base, anchor)
            timing_s = time.perf_counter() - began
            clocks.append(self.at.device.clock_mhz())
        status, message, report = self._left()
        is_naive = self.code_key == self.at.naive_key
        measurement = measurement_of(paired, anchor, is_naive, self.at.timer.name, _both(*clocks))
        if status is Status.PASSED:
            status, message = _plausible(paired, measurement, floor_us, plan)
        made = None
        if plan is ANCHOR_PLAN and status in (Status.PASSED, Status.NOISY):
            made = Anchor("", paired.ratio, paired.half_width, measurement.latency_us * 1e-6)
        rest_s = time.perf_counter() - started - timing_s - lock.waited_s
        return replace(
            self.gated,
            status=status,
            report=report,
            measurement=measurement if status is Status.PASSED else None,
            message=message,
            anchor=made,
            gate_s=self.gated.gate_s + rest_s,
            waited_s=lock.waited_s,
            timing_s=timing_s,
            timed_runs_s=self.timed_runs_s,
        )

    def _pair(self, base: Call, anchor: Anchor | None) -> tuple[Paired, Anchor | None, TimingPlan]:
        """Time against `base`; against naive with ANCHOR_PLAN if the program becomes an anchor."""
        at, plan = self.at, self.at.rules.plans[self.level]
        candidate = Call(self.function, at.bench.arguments())
        base_s = at.naive_s if anchor is None else anchor.seconds
        paired = interleave(candidate, base, (self.estimate_s, base_s), plan, at.timer)
        self.timed_runs_s = paired.runs_s
        if self.level is Level.TRAINING and paired.ratio >= PROMOTION:
            pair = (self.estimate_s, at.naive_s)
            full = interleave(candidate, at.naive, pair, ANCHOR_PLAN, at.timer)
            self.timed_runs_s += full.runs_s
            if full.half_width <= ANCHOR_WIDTH:
                return full, None, ANCHOR_PLAN
        return paired, anchor, plan

    def _left(self) -> tuple[Status, str, GateReport]:
        """The gate on what the timed loop left."""
        bench, given, report = self.at.bench, self.given, self.found.report
        bench.fetch()
        failure, worst, identical = check(bench, given)
        status, message = Status.PASSED, ""
        if failure:
            status, message = Status.WRONG_RESULT, f"after timing: {failure}"
        elif not bench.same_bits_everywhere(self.first):
            status = Status.FLAKY
            message = f"{given.regime}: the timed calls left other bits than the first call"
        regimes = tuple(dict.fromkeys((*report.regimes, str(given.regime))))
        worst = max(report.worst_error, worst)
        return (
            status,
            message,
            GateReport(regimes, worst, report.bit_identical and identical, message),
        )


def _both(before: int | None, after: int | None) -> tuple[int, int] | None:
    return None if before is None or after is None else (before, after)


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
