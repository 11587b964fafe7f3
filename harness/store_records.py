"""What a store holds, as values: `Context`, `Record`, `StoredProgram`, `StoredWalk`; their rows."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from tirgym.errors import InvalidValueError
from tirgym.harness.evaluation import Evaluation, GateReport, Level, Measurement, TimingStats
from tirgym.harness.status import Status
from tirgym.harness.target import Target

__all__ = [
    "PROTOCOL_VERSION",
    "SETTLED",
    "Answers",
    "Context",
    "Record",
    "StoredProgram",
    "StoredWalk",
    "columns_of",
    "path_text",
    "read_context",
    "read_path",
    "read_record",
    "read_steps",
    "read_target",
]

SETTLED = frozenset(
    {
        Status.PASSED,
        Status.WRONG_RESULT,
        Status.FLAKY,
        Status.TOO_SLOW,
        Status.COMPILE_ERROR,
    }
)
"""Verdicts that stand; any other is replaced by the next one on the same key."""
PROTOCOL_VERSION = 2
"""How gate and timing work; numbers of different protocols are never mixed."""

Answers = tuple[tuple[str, int], ...]
"""The answers of a walk in order: question key and value of each."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a verdict holds for, the code apart."""

    workload: str
    """URI; for kernels outside released suites with a digest of their functions"""
    target: Target
    versions: str
    """compiler versions, canonical"""
    machine: str
    """fingerprint"""
    protocol: int = PROTOCOL_VERSION

    @property
    def target_text(self) -> str:
        """Canonical text of the target, threads included."""
        return f"{self.target.backend} {self.target.arch} {self.target.num_threads}"


@dataclass(frozen=True, slots=True)
class Record:
    """One stored verdict."""

    context: Context
    key: str
    """code key, or "ir:" and the IR key of a program whose code was never emitted"""
    level: Level
    status: Status
    message: str = ""
    gate: GateReport | None = None
    measurement: Measurement | None = None
    slowdown_limit: float | None = None

    def evaluation(self, ir_key: str) -> Evaluation:
        """The verdict as an answer for a program with `ir_key`, marked as reused."""
        measured = self.measurement
        return Evaluation(
            self.status,
            ir_key,
            "" if self.key.startswith("ir:") else self.key,
            None if measured is None else replace(measured, reused=True),
            self.gate,
            self.message,
            self.level,
            slowdown_limit=self.slowdown_limit,
        )


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """How to make one program that was evaluated, and where its verdicts stand."""

    workload: str
    """as in `Context`"""
    target: Target
    versions: str
    ir_key: str
    key: str
    """of its verdicts: the code key, or "ir:" and the IR key if no code was emitted"""
    transforms: tuple[str, ...]
    """text forms, in order; from the unscheduled program"""


@dataclass(frozen=True, slots=True)
class StoredWalk:
    """A finished walk through the design space, and the verdict on where it ends."""

    path: Answers
    ir_key: str
    """of its program; several walks may lead to one"""
    source: str
    """who proposed it first, such as `random 0.17`"""
    status: Status | None
    """the verdict under the context that was asked for, None if there is none"""

    @property
    def settled(self) -> bool:
        """Whether the verdict stands: with a number, or with a reason that is the program's."""
        return self.status in SETTLED or self.status is Status.ILLEGAL


def columns_of(context: Context) -> tuple[object, ...]:
    """The key columns of a verdict, in their order."""
    c = context
    return (c.workload, c.target_text, c.versions, c.machine, c.protocol)


def read_context(workload: str, target: str, versions: str, machine: str, protocol: int) -> Context:
    """The context of a row."""
    return Context(workload, read_target(target), versions, machine, protocol)


def read_target(text: str) -> Target:
    """The target of `Context.target_text`."""
    backend, arch, threads = text.split(" ")
    return Target(backend, arch, int(threads))


def _gate(data: dict[str, Any]) -> GateReport:
    return GateReport(**{**data, "regimes": tuple(data["regimes"])})


def _measurement(data: dict[str, Any]) -> Measurement:
    known = {f.name: f.default for f in fields(Measurement)}
    needed = {name for name, default in known.items() if default is MISSING}
    if not needed <= set(data) <= set(known):
        raise ValueError(f"measurement fields {sorted(data)}")
    clock = data.get("clock_mhz")
    return Measurement(
        **{
            **data,
            "clock_mhz": None if clock is None else tuple(clock),
            "candidate": TimingStats(**data["candidate"]),
            "baseline": TimingStats(**data["baseline"]),
            "speedup_ci": tuple(data["speedup_ci"]),
        }
    )


def read_record(row: tuple[Any, ...]) -> Record:
    """The record of a row; raises ValueError, TypeError or KeyError if it is none."""
    key, level, status, message, gate, measured, slowdown = row[5:]
    record = Record(
        read_context(*row[:5]),
        key,
        Level(level),
        Status(status),
        message,
        None if gate is None else _gate(json.loads(gate)),
        None if measured is None else _measurement(json.loads(measured)),
        slowdown,
    )
    try:
        record.evaluation("")  # a row that no evaluation can be made of was not written here
    except InvalidValueError:
        raise ValueError(f"{status}, with the wrong parts for that") from None
    return record


def read_steps(text: str) -> tuple[str, ...]:
    """The transforms of a row; raises ValueError."""
    steps = json.loads(text)
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise ValueError("transforms that are no list of texts")
    return tuple(steps)


def path_text(path: Answers) -> str:
    """Canonical text of the answers of a walk."""
    return json.dumps(path, separators=(",", ":"))


def read_path(text: str) -> Answers:
    """The answers of a row; raises ValueError."""
    answers = json.loads(text)
    try:
        path = tuple((key, value) for key, value in answers)
    except TypeError:
        path = ((None, None),)
    if not all(isinstance(key, str) and type(value) is int for key, value in path):
        raise ValueError("answers that are no pairs of a key and a number")
    return path
