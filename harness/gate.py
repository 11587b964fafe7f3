"""The gate: runs a binary on secret inputs, with poison and guard bands, and judges every element."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirgym.harness.buffers import GuardedBuffer, Poison, same_bits
from tirgym.harness.evaluation import GateReport
from tirgym.harness.judge import Compare, Expected, Verdict, judge, judge_with
from tirgym.harness.status import Status
from tirgym.kernels_suite.kernel import Array, Regime

__all__ = ["Bench", "GateOutcome", "InputSet", "run_gate"]

RERUN_POISONS = (Poison.HIGH, Poison.LOW)


@dataclass(frozen=True, slots=True)
class InputSet:
    """Inputs of one regime with everything that is needed to judge outputs on them."""

    regime: Regime
    inputs: tuple[Array, ...]
    expected: tuple[Expected, ...]

    @property
    def nbytes(self) -> int:
        """Memory that the set holds."""
        arrays = [*self.inputs]
        for e in self.expected:
            arrays += [e.reference, e.unscheduled, *([] if e.scale is None else [e.scale])]
        return sum(array.nbytes for array in arrays)


@dataclass(slots=True)
class GateOutcome:
    """Verdict of the gate; `status` is PASSED, WRONG_RESULT, FLAKY or TOO_SLOW."""

    status: Status
    report: GateReport
    seconds: float
    """fastest call, in seconds"""
    runs_s: float
    """wall seconds inside the kernel"""
    failing: InputSet | None = None


class Bench:
    """A binary's guarded memory: loads inputs, poisons outputs, runs, and looks for damage."""

    def __init__(
        self,
        inputs: Sequence[GuardedBuffer],
        outputs: Sequence[GuardedBuffer],
        compare: Compare | None = None,
        bitwise: bool = False,
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.compare, self.bitwise = compare, bitwise
        self.runs_s = 0.0
        self.tainted = False
        """a guard band was hit: memory further away may be damaged too"""
        self.answers_left = False
        """put the right answers into the outputs before they are poisoned: studies of the gate want
        the worst case, in which an untouched output is right unless the poison works"""

    def arguments(self) -> tuple[Any, ...]:
        """Device tensors in the order of the kernel's parameters."""
        return tuple(buffer.device for buffer in (*self.inputs, *self.outputs))

    def prepare(self, given: InputSet, poison: Poison) -> None:
        """Load the inputs and poison the outputs."""
        for buffer, values in zip(self.inputs, given.inputs, strict=True):
            buffer.fill(values)
        if self.answers_left:
            for buffer, expected in zip(self.outputs, given.expected, strict=True):
                buffer.fill(expected.unscheduled)
        for buffer in self.outputs:
            buffer.poison(poison)
        for buffer in (*self.inputs, *self.outputs):
            buffer.send()

    def used_places(self) -> tuple[int, ...]:
        """Where calls since `prepare` may have left results, see `GuardedBuffer.places`."""
        used = {place for b in (*self.inputs, *self.outputs) for place in b.places}
        return tuple(sorted(used))

    def fetch(self, place: int = 0) -> None:
        """Look at what calls outside of `run` left in the device's memory, at one of `used_places`."""
        for buffer in (*self.inputs, *self.outputs):
            buffer.fetch(place)

    def run(self, function: Callable[..., Any], given: InputSet, poison: Poison) -> float:
        """One call on poisoned outputs; its seconds."""
        self.prepare(given, poison)
        arguments = self.arguments()
        start = time.perf_counter()
        function(*arguments)
        seconds = time.perf_counter() - start
        self.runs_s += seconds
        self.fetch()
        return seconds

    def damage(self, given: InputSet) -> str:
        """What was written that must not be: guard bands and inputs; "" if nothing.

        Damage is repaired, so that the next program starts clean.
        """
        found = ""
        for buffer in (*self.inputs, *self.outputs):
            problem = buffer.overrun()
            if problem is not None:
                buffer.reset_guards()
                self.tainted = True
                found = found or problem
        for buffer, values in zip(self.inputs, given.inputs, strict=True):
            if buffer.changed(values):
                found = found or f"{buffer.tensor.name}: an input was changed"
        return found

    def judge(self, given: InputSet) -> list[Verdict]:
        """Judge what is in the outputs now."""
        got = tuple(buffer.array for buffer in self.outputs)
        if self.compare is not None:
            verdicts = judge_with(self.compare, given.inputs, got, given.expected)
        else:
            verdicts = [judge(g, e) for g, e in zip(got, given.expected, strict=True)]
        if self.bitwise and not any(v.failure for v in verdicts):
            text = "differs from the unscheduled program's bits (bitwise mode)"
            verdicts = [
                v if v.bit_identical else Verdict(f"{e.name}: {text}", v.worst)
                for v, e in zip(verdicts, given.expected, strict=True)
            ]
        return verdicts

    def bits(self) -> tuple[bytes, ...]:
        """A copy of the outputs."""
        return tuple(buffer.array.tobytes() for buffer in self.outputs)

    def same_bits(self, bits: tuple[bytes, ...]) -> bool:
        """Whether the outputs equal an earlier copy."""
        return all(
            same_bits(b.array, np.frombuffer(old, np.uint8))
            for b, old in zip(self.outputs, bits, strict=True)
        )

    def same_bits_everywhere(self, bits: tuple[bytes, ...]) -> bool:
        """As `same_bits`, at each of `used_places`."""
        for place in self.used_places():
            self.fetch(place)
            if not self.same_bits(bits):
                return False
        return True


def check(bench: Bench, given: InputSet) -> tuple[str, float, bool]:
    """Failure ("" if right), worst error in units of the limit, bits as the unscheduled program's.

    What was fetched is judged first, then every other place that calls have used, up to the first
    that is wrong.
    """
    failure, worst, identical = _check_fetched(bench, given)
    for place in bench.used_places()[1:]:
        if failure:
            break
        bench.fetch(place)
        failure, error, bits = _check_fetched(bench, given)
        worst, identical = max(worst, error), identical and bits
    return failure, worst, identical


def _check_fetched(bench: Bench, given: InputSet) -> tuple[str, float, bool]:
    damage = bench.damage(given)
    if damage:
        return f"{given.regime}: {damage}", 0.0, False
    verdicts = bench.judge(given)
    failure = next((v.failure for v in verdicts if v.failure), "")
    worst = max((v.worst for v in verdicts), default=0.0)
    return (
        f"{given.regime}: {failure}" if failure else "",
        worst,
        all(v.bit_identical for v in verdicts),
    )


def run_gate(
    bench: Bench,
    function: Callable[..., Any],
    sets: Sequence[InputSet],
    slow_s: float = np.inf,
    reruns: int | None = None,
) -> GateOutcome:
    """Run `function` twice on each of `sets` (on the first `reruns` if given), with other poison the
    second time, and judge it.

    All first runs come before all second ones, so that intermediates left behind by a run belong
    to other inputs. Stops after the first set with TOO_SLOW if the fastest call took longer than
    `slow_s` seconds.
    """
    start_s, fastest, worst, identical = bench.runs_s, np.inf, 0.0, True
    done: list[tuple[InputSet, tuple[bytes, ...]]] = []

    def outcome(status: Status, failure: str = "", at: InputSet | None = None) -> GateOutcome:
        regimes = tuple(dict.fromkeys(str(s.regime) for s, _ in done))
        report = GateReport(regimes, float(worst), identical and not failure, failure)
        return GateOutcome(status, report, float(fastest), bench.runs_s - start_s, at)

    for given in sets:
        fastest = min(fastest, bench.run(function, given, Poison.NAN))
        failure, error, bits = check(bench, given)
        first = bench.bits()
        done.append((given, first))
        worst, identical = max(worst, error), identical and bits
        if failure:
            bench.run(function, given, Poison.NAN)
            bench.damage(given)
            status = Status.WRONG_RESULT if bench.same_bits(first) else Status.FLAKY
            return outcome(status, failure, given)
        if fastest > slow_s:
            fastest = min(fastest, bench.run(function, given, Poison.HIGH))
            if fastest > slow_s:
                return outcome(Status.TOO_SLOW)
    for number, (given, first) in enumerate(done[:reruns]):
        fastest = min(fastest, bench.run(function, given, RERUN_POISONS[number % 2]))
        failure, _, _ = ("", 0.0, False) if bench.same_bits(first) else check(bench, given)
        failure = failure or _damage(bench, given)
        if failure or not bench.same_bits(first):
            return outcome(*_disagreement(bench, function, given, first, failure), given)
    return outcome(Status.PASSED)


def _damage(bench: Bench, given: InputSet) -> str:
    damage = bench.damage(given)
    return f"{given.regime}: {damage}" if damage else ""


def _disagreement(
    bench: Bench,
    function: Callable[..., Any],
    given: InputSet,
    first: tuple[bytes, ...],
    failure: str,
) -> tuple[Status, str]:
    """Settle a second run that is wrong or has other bits than the first.

    If the first poison gives the first bits again, the result depends on what was in the output
    before, which is wrong rather than random.
    """
    bench.run(function, given, Poison.NAN)
    bench.damage(given)
    if failure and bench.same_bits(first):
        return Status.WRONG_RESULT, f"{failure} (the result depends on old output values)"
    text = f"{given.regime}: two runs of one binary on the same inputs differ"
    return Status.FLAKY, f"{text} ({failure})" if failure else text
