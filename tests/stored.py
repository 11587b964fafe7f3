"""Records for tests of the store, and processes that open it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tirgym.harness.evaluation import GateReport, Level, Measurement, TimingStats
from tirgym.harness.status import Status
from tirgym.harness.store import Context, Record
from tirgym.harness.target import Target

__all__ = ["CONTEXT", "FIRST_LAYOUT", "OLD", "OLD_RECORD", "in_process", "measured", "passed"]

CONTEXT = Context("tirgym://core-v0/matmul?m=1", Target("llvm", "skylake", 1), "tvm=1", "machine")


def measured(speedup: float) -> Measurement:
    """Any measurement with that speedup."""
    stats = TimingStats(1.5, 2.0, 3.0, 4.0, 20)
    return Measurement(stats, stats, speedup, (speedup * 0.9, speedup * 1.1), 2.5)


def passed(key: str = "code", speedup: float = 2.0, level: Level = Level.TRAINING) -> Record:
    """A record of a pass."""
    gate = GateReport(("ramp", "normal"), 0.25, False)
    return Record(CONTEXT, key, level, Status.PASSED, "", gate, measured(speedup))


FIRST_LAYOUT = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE codes (
    workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, ir_key TEXT NOT NULL,
    code_key TEXT NOT NULL,
    PRIMARY KEY (workload, target, versions, ir_key)
) WITHOUT ROWID;
CREATE TABLE verdicts (
    workload TEXT NOT NULL, target TEXT NOT NULL, versions TEXT NOT NULL, machine TEXT NOT NULL,
    protocol INTEGER NOT NULL, key TEXT NOT NULL, level TEXT NOT NULL,
    status TEXT NOT NULL, message TEXT NOT NULL, gate TEXT, measurement TEXT, slowdown REAL,
    PRIMARY KEY (workload, target, versions, machine, protocol, key, level)
) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema', '1');
INSERT INTO codes VALUES ('w', 'llvm x 1', 'v', 'ir', 'code');
INSERT INTO verdicts
    VALUES ('w', 'llvm x 1', 'v', 'm', 2, 'code', 'training', 'too_slow', 'slow', NULL, NULL, 9.0);
"""
"""A file as the first release wrote it."""
OLD = Context("w", Target("llvm", "x", 1), "v", "m")
OLD_RECORD = Record(OLD, "code", Level.TRAINING, Status.TOO_SLOW, "slow", None, None, 9.0)


_SCRIPT = """
import sys
sys.path[:0] = {path!r}
from stored import CONTEXT, passed
from tirgym.harness.store import Store
store = Store({store!r})
"""


def in_process(path: Path, code: str) -> subprocess.Popen[str]:
    """A process that runs `code`, in which `store` is the one at `path`."""
    here = [os.path.dirname(__file__)]
    script = _SCRIPT.format(path=here, store=str(path)) + code
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
