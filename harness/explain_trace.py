"""`explain_trace`: a trace step by step: what each transform changed, and what was measured there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from tirgym.errors import IllegalTransformError, TargetMismatchError
from tirgym.harness.account import Account, account
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.explain import Explanation, compare
from tirgym.harness.program import Program
from tirgym.harness.replay import replay_steps, require_key
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace

__all__ = ["Gain", "Measured", "Step", "TraceExplanation", "explain_trace", "measured_by"]


@dataclass(frozen=True, slots=True)
class Measured:
    """A verdict on the program after one step."""

    status: str
    source: str
    """where it comes from: "recorded", or "measured" now"""
    latency_us: float | None = None
    speedup: float | None = None
    """over the unscheduled program"""
    speedup_ci: tuple[float, float] | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of a trace and what came of it."""

    number: int
    """1 for the first transform"""
    transform: str
    refusal: str = ""
    """why it is not legal, "" if it is"""
    explanation: Explanation | None = None
    """None if it is not legal"""
    measured: Measured | None = None


class Gain(NamedTuple):
    """How a step changed the measured time."""

    step: int
    ratio: float
    """time before / time after: above 1 the step gained"""
    interval: tuple[float, float] | None
    """None where one of the times has no interval"""

    @property
    def verdict(self) -> str:
        """ "faster", "slower", or "no difference shown" where the interval holds 1; "" without one."""
        if self.interval is None:
            return ""
        low, high = self.interval
        return "faster" if low > 1.0 else "slower" if high < 1.0 else "no difference shown"


@dataclass(frozen=True)
class TraceExplanation:
    """A trace, explained for one target."""

    trace: Trace
    target: Target
    programs: tuple[Program, ...]
    """the unscheduled program, then the one after each legal step"""
    start: Account
    """of the unscheduled program"""
    steps: tuple[Step, ...]
    """up to the first that is not legal"""
    begin: Measured | None = None
    """verdict on the unscheduled program"""

    @property
    def legal(self) -> bool:
        """Whether every step is."""
        return not any(step.refusal for step in self.steps)

    @property
    def gains(self) -> tuple[Gain, ...]:
        """What each step did to the measured time, where the program before and after has one."""
        verdicts = [self.begin, *(step.measured for step in self.steps)]
        found = [
            _gain(number, before, now) for number, (before, now) in enumerate(pairwise(verdicts), 1)
        ]
        return tuple(gain for gain in found if gain is not None)

    def with_measured(self, verdicts: Mapping[int, Measured]) -> TraceExplanation:
        """The same with verdicts by step number, 0 for the unscheduled program."""
        steps = tuple(
            replace(step, measured=verdicts.get(step.number, step.measured)) for step in self.steps
        )
        return replace(self, steps=steps, begin=verdicts.get(0, self.begin))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; `quantities` declares every name with unit and source."""
        return {
            "quantities": [
                {
                    "name": quantity.name,
                    "what": quantity.noun or quantity.column,
                    "unit": quantity.unit.value,
                    "exact": quantity.exact,
                    "source": quantity.source,
                }
                for quantity in self.start.quantities
            ],
            "start": dict(self.start.values),
            "start_measured": _record(self.begin),
            "steps": [self._step(step) for step in self.steps],
            "legal": self.legal,
        }

    def _step(self, step: Step) -> dict[str, Any]:
        explained = step.explanation
        gain = {gain.step: gain for gain in self.gains}.get(step.number)
        return {
            "step": step.number,
            "transform": step.transform,
            "legal": not step.refusal,
            "refusal": step.refusal,
            "ir_key": self.programs[step.number].ir_key if explained else "",
            "predicted_us": _cost(explained),
            **(explained.to_dict() if explained else {"changes": {}, "sentences": []}),
            "after": dict(explained.after.values) if explained else {},
            "measured": _record(step.measured),
            "gain": gain.ratio if gain else None,
            "gain_ci": gain.interval if gain else None,
            "verdict": gain.verdict if gain else None,
        }


def explain_trace(trace: Trace, target: Target | None = None) -> TraceExplanation:
    """Explain each step of `trace`, for its own target unless another is given.

    A step that is not legal ends the explanation with its reason. Raises what `replay_steps` raises
    for unknown names, TargetMismatchError if the IR is not the recorded one, and UnknownNameError
    for a backend that has no accountant.
    """
    target = target or trace.target
    programs, refusal = _programs(trace, target)
    if not refusal:
        require_key(trace, programs[-1])
    accounts = [account(program) for program in programs]
    steps = [
        Step(number, trace.transforms[number - 1], explanation=compare(before, after))
        for number, (before, after) in enumerate(pairwise(accounts), 1)
    ]
    if refusal:
        steps.append(Step(len(programs), trace.transforms[len(programs) - 1], refusal))
    return TraceExplanation(trace, target, tuple(programs), accounts[0], tuple(steps))


def _programs(trace: Trace, target: Target) -> tuple[list[Program], str]:
    """The programs up to the first step that is not legal, and why it is not."""
    programs: list[Program] = []
    try:
        programs.extend(replay_steps(trace, target))
    except IllegalTransformError as error:
        return programs, str(error)
    except TargetMismatchError as error:
        if not programs:
            raise
        return programs, str(error)
    return programs, ""


def measured_by(
    explanation: TraceExplanation,
    evaluate: Callable[[Program], Evaluation],
    on_step: Callable[[int], None] = lambda number: None,
) -> TraceExplanation:
    """The explanation with the verdict of `evaluate` on each program; equal IR is asked once."""
    verdicts: dict[int, Measured] = {}
    known: dict[str, Measured] = {}
    for number, program in enumerate(explanation.programs):
        on_step(number)
        if program.ir_key not in known:
            known[program.ir_key] = _measured(evaluate(program))
        verdicts[number] = known[program.ir_key]
    return explanation.with_measured(verdicts)


def _measured(evaluation: Evaluation) -> Measured:
    number = evaluation.measurement
    return Measured(
        evaluation.status.value,
        "measured",
        number.latency_us if number else None,
        number.speedup if number else None,
        number.speedup_ci if number else None,
        evaluation.message,
    )


def _gain(number: int, before: Measured | None, now: Measured | None) -> Gain | None:
    if before is None or now is None or before.speedup is None or now.speedup is None:
        return None
    ratio = now.speedup / before.speedup
    old, new = before.speedup_ci, now.speedup_ci
    interval = (new[0] / old[1], new[1] / old[0]) if old and new else None
    return Gain(number, ratio, interval)


def _cost(explained: Explanation | None) -> dict[str, float | None]:
    """Predicted time before and after; null where the account has none."""
    if explained is None:
        return {"before": None, "after": None}
    return {
        "before": explained.before.values.get("predicted_us"),
        "after": explained.after.values.get("predicted_us"),
    }


def _record(measured: Measured | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        "status": measured.status,
        "source": measured.source,
        "latency_us": measured.latency_us,
        "speedup": measured.speedup,
        "speedup_ci": measured.speedup_ci,
        "message": measured.message,
    }
