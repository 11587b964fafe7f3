"""`DecisionLog`: what was done with a program in a session, with verdicts and what changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tirgym.errors import CompileFailedError
from tirgym.harness.account import account, has_account
from tirgym.harness.cost import CostModel
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.program import Program

__all__ = ["DecisionLog", "Event"]

_PROFILES_KEPT = 256


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the decision log."""

    number: int
    action: str
    """load, transform, evaluate, snapshot, rollback or search"""
    subject: str
    """the transform, workload, snapshot or agent"""
    verdict: str
    """ok, illegal, interrupted, or the status of an evaluation"""
    ir_key: str
    """of the current program afterwards"""
    elapsed_ms: float
    """wall time of the action"""
    message: str = ""
    """why it was refused or did not pass"""
    change: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """figures of the account (see `account`) that the action changed: before, after"""
    code_key: str = ""
    latency_us: float | None = None
    speedup: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """wall seconds of an evaluation by phase"""

    def to_json(self) -> str:
        """One line of JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True)


class DecisionLog:
    """Events in order. `cost` answers the model that predicts times, asked when it is first needed."""

    def __init__(self, cost: Callable[[], CostModel]) -> None:
        self.events: list[Event] = []
        self._cost = cost
        self._profiles: dict[int, tuple[Program, dict[str, float]]] = {}
        """by identity, which the program beside it keeps its own"""

    def add(
        self,
        action: str,
        subject: str,
        verdict: str,
        began: float,
        current: Program,
        message: str = "",
        before: Program | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        """An action that `began` at a `perf_counter`, left `current`, and started from `before` if it
        may have changed something."""
        measured = evaluation.measurement if evaluation else None
        self.events.append(
            Event(
                number=len(self.events),
                action=action,
                subject=subject,
                verdict=verdict,
                ir_key=current.ir_key,
                elapsed_ms=(time.perf_counter() - began) * 1e3,
                message=message or (evaluation.message if evaluation else ""),
                change=self._change(before, current) if before is not None else {},
                code_key=evaluation.code_key if evaluation else "",
                latency_us=measured.latency_us if measured else None,
                speedup=measured.speedup if measured else None,
                phases_s=asdict(evaluation.phases) if evaluation else {},
            )
        )

    def save(self, path: str | Path) -> None:
        """Write the events as JSON lines."""
        text = "".join(event.to_json() + "\n" for event in self.events)
        Path(path).write_text(text, encoding="utf-8")

    def _change(self, before: Program, after: Program) -> dict[str, tuple[float, float]]:
        old, new = self._profile(before), self._profile(after)
        return {
            name: (old[name], new[name]) for name in old if name in new and old[name] != new[name]
        }

    def _profile(self, program: Program) -> dict[str, float]:
        """The account of `program` where its backend has one, predicted time and steps."""
        kept = self._profiles.get(id(program))
        if kept is None:
            if len(self._profiles) >= _PROFILES_KEPT:
                self._profiles.clear()
            figures = dict(account(program).values) if has_account(program) else {}
            with suppress(CompileFailedError):  # cost models that compile have nothing to say then
                figures["predicted_us"] = self._cost().predict_us(program)
            figures["steps"] = float(len(program.steps))
            kept = self._profiles[id(program)] = program, figures
        return kept[1]
