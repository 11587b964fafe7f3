"""Fakes for tests: an evaluator with scripted verdicts, a cost model without formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tirgym.harness.evaluation import Evaluation, GateReport, Level, Measurement, TimingStats
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status

__all__ = ["FakeCost", "FakeEvaluator", "passed", "timing", "verdict"]


def timing(us: float) -> TimingStats:
    """Timing of `us` µs a call."""
    return TimingStats(us, us, us, us, 20)


def passed(
    speedup: float,
    ir_key: str = "ir",
    code_key: str = "",
    level: Level = Level.TRAINING,
    spread: float = 0.0,
) -> Evaluation:
    """A PASSED evaluation; `spread` is half the relative width of the interval."""
    interval = (speedup * (1 - spread), speedup * (1 + spread))
    return Evaluation(
        Status.PASSED,
        ir_key,
        code_key or f"code-{ir_key}",
        Measurement(timing(1000.0 / speedup), timing(1000.0), speedup, interval),
        GateReport(("normal",), 0.0, True),
        level=level,
    )


def verdict(
    status: Status,
    ir_key: str = "ir",
    code_key: str = "",
    level: Level = Level.TRAINING,
    slowdown_limit: float | None = None,
) -> Evaluation:
    """An evaluation with any status; PASSED gets speedup 1, TOO_SLOW a limit of 10."""
    if status is Status.PASSED:
        return passed(1.0, ir_key, code_key, level)
    limit = slowdown_limit or (10.0 if status is Status.TOO_SLOW else None)
    return Evaluation(
        status, ir_key, code_key, message=f"scripted {status}", level=level, slowdown_limit=limit
    )


class FakeEvaluator(Evaluator):
    """Answers from a script, then by `otherwise`: a speedup that grows by 10 % with each transform.

    A script entry is a status, a speedup, or an evaluation. `calls` records (IR key, level).
    """

    def __init__(
        self,
        script: Iterable[Status | float | Evaluation] = (),
        otherwise: Callable[[Program], float] | None = None,
    ) -> None:
        self.script = list(script)
        self.otherwise = otherwise or (lambda program: 1.1 ** len(program.steps))
        self.calls: list[tuple[str, Level]] = []
        self.closed = False

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        """The next entry of the script, or a pass."""
        self.calls.append((program.ir_key, level))
        entry = self.script.pop(0) if self.script else self.otherwise(program)
        if isinstance(entry, Evaluation):
            return entry
        if isinstance(entry, Status):
            return verdict(entry, program.ir_key, level=level)
        return passed(entry, program.ir_key, level=level)

    def close(self) -> None:
        """Remember it."""
        self.closed = True


class FakeCost:
    """Predicts 100 µs, 10 % less for each applied transform."""

    def __init__(self) -> None:
        self.calls = 0

    def predict_us(self, program: Program) -> float:
        """Depends on the number of transforms alone."""
        self.calls += 1
        return float(100.0 * 0.9 ** len(program.steps))
