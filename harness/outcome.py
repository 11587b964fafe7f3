"""`Outcome`: what a worker answers about one binary; `Anchor`: a binary that others are timed by."""

from __future__ import annotations

from dataclasses import dataclass

from tirgym.harness.evaluation import GateReport, Measurement
from tirgym.harness.status import Status

__all__ = ["Anchor", "Outcome"]


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker answers about one binary."""

    status: Status
    """PASSED after the gate alone: right, and not timed yet"""
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
