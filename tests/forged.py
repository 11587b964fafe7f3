"""A measurement store that lies, for tests of what is not believed."""

from __future__ import annotations

from pathlib import Path

from fakes import timing

from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import GateReport, Level, Measurement
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import Record, Store

__all__ = ["MEASURED", "forge_store"]

MEASURED = Measurement(timing(1.0), timing(1000.0), 1000.0, (990.0, 1010.0))
"""A thousand times as fast."""


def forge_store(path: Path, program: Program, code_key: str) -> None:
    """A store that says that `program`, which compiles to `code_key`, is a thousand times as fast as
    the unscheduled program."""
    context = context_of(program.workload, program.target)
    with_gate = GateReport(("normal",), 0.0, True)
    store = Store(path)
    for level in Level:
        store.put(Record(context, code_key, level, Status.PASSED, "", with_gate, MEASURED))
    store.put_code_key(context, program.ir_key, code_key)
    store.close()
