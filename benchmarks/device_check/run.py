"""`run_check`: every planned row within the budget; what is not reached is named, never dropped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tirgym.benchmarks.device_check import prepared_rows, rows, search
from tirgym.benchmarks.device_check.aims import aims
from tirgym.benchmarks.device_check.bench import DeviceCheck, OutOfTimeError
from tirgym.benchmarks.device_check.plan import Plan
from tirgym.benchmarks.device_check.record import Record
from tirgym.errors import CompileFailedError, EvaluationError, WorkerDiedError
from tirgym.harness.channel import DeadlineError
from tirgym.harness.status import Status
from tirgym.harness.triton.device.device import DeviceFacts
from tirgym.harness.triton.device.process import CUDA, DeviceProcess
from tirgym.harness.triton.gpus import gpu
from tirgym.harness.triton.pool import CompilePool

__all__ = ["NOT_REACHED", "PARTS", "ROUNDS", "planned", "run_check"]

NOT_REACHED = "not_reached"
_NEEDS_CORRECT = ("vendor", "search", "ranking", "autotuner")
_WORKERS = 12
_COMPILE_S = 30.0
"""a candidate that takes longer to compile is one that does not"""

Make = Callable[[DeviceCheck, str], dict[str, Any]]

PARTS: dict[str, tuple[Callable[[Plan], tuple[str, ...]], Make]] = {
    "device": (lambda _: ("copy",), rows.copy),
    "correctness": (lambda plan: plan.kernels, rows.correctness),
    "vendor": (lambda plan: plan.kernels, rows.vendor),
    "prepared": (lambda plan: plan.prepared, prepared_rows.prepared),
    "search": (lambda plan: plan.searched, search.search),
    "ranking": (lambda plan: plan.ranked, rows.ranking),
    "autotuner": (
        lambda plan: tuple(k for k in plan.kernels if k not in plan.searched),
        search.tuned,
    ),
}
"""Part → names of its rows, and what makes one."""
ROUNDS = (
    ("device",),
    ("correctness", "vendor"),
    ("prepared",),
    ("search", "ranking"),
    ("autotuner",),
)
"""Parts that are made together, one kernel after the other: its references are worked out once."""

Say = Callable[[str], None]


def planned(plan: Plan) -> Iterator[tuple[str, str, Make]]:
    """Part, name and maker of every row, in order."""
    for parts in ROUNDS:
        found = {part: PARTS[part][0](plan) for part in parts}
        for name in dict.fromkeys(name for names in found.values() for name in names):
            yield from ((part, name, PARTS[part][1]) for part in parts if name in found[part])


def run_check(
    plan: Plan,
    folder: Path,
    *,
    factory: str = CUDA,
    secret: bytes,
    say: Say = lambda _: None,
    pool: CompilePool | None = None,
    device: DeviceProcess | None = None,
    prepared: Mapping[str, Path] | None = None,
) -> Record:
    """Make what rows the folder's record lacks; answers it. `pool` and `device` are closed. `prepared`
    are the files of the plan's prepared kernels.

    Raises BackendUnavailableError where the device does not open, UnknownNameError for one that
    nothing is compiled for, and what `Record` raises.
    """
    started = time.monotonic()
    workers, process = (
        pool or CompilePool(_WORKERS, _COMPILE_S),
        device or DeviceProcess(factory, secret=secret),
    )
    with process, workers:
        facts: DeviceFacts = process.call("facts", timeout_s=plan.row_timeout_s)
        gpu(facts.arch)
        record = Record(folder, _head(plan, facts))
        check = DeviceCheck(plan, facts.arch, workers, process, record, started, prepared or {})
        for part, name, make in planned(plan):
            kept = record.rows.get((part, name))
            if kept is not None and kept["status"] != NOT_REACHED:
                continue
            row = _row(check, part, name, make)
            record.add(part, name, row)
            say(f"{part} {name}: {row['status']}{_told(row.get('message'))}")
        record.summary = _summary(record, plan, time.monotonic() - started, process.lost)
        record.write()
    return record


def _head(plan: Plan, facts: DeviceFacts) -> dict[str, Any]:
    told = asdict(facts)
    versions = told.pop("versions")
    figures = gpu(facts.arch).product
    return {"device": told, "versions": versions, "plan": plan.fields(), "static_cost_of": figures}


def _row(check: DeviceCheck, part: str, name: str, make: Make) -> dict[str, Any]:
    """One row, or why there is none; whatever happens in it stays in it."""
    correct = check.record.rows.get(("correctness", name), {}).get("status")
    if part in _NEEDS_CORRECT and correct != Status.PASSED:
        return _none(str(correct or NOT_REACHED), "its default configuration did not pass the gate")
    began = time.monotonic()
    try:
        before = check.ask("clock_mhz")
        row = make(check, name)
        after = check.ask("clock_mhz") if check.left_s > 0 else None
    except OutOfTimeError as error:
        return _none(NOT_REACHED, str(error))
    except DeadlineError as error:
        return _none(str(Status.TIMEOUT), str(error))
    except CompileFailedError as error:
        return _none(str(Status.COMPILE_ERROR), str(error))
    except WorkerDiedError as error:
        return _none(str(Status.CRASH), str(error))
    except EvaluationError as error:
        return _none(str(Status.CRASH), str(error))
    return {**row, "clock_mhz": [before, after], "wall_s": round(time.monotonic() - began, 2)}


def _none(status: str, message: str) -> dict[str, Any]:
    return {"status": status, "message": message}


def _told(message: str | None) -> str:
    return f": {message.splitlines()[0][:200]}" if message else ""


def _summary(record: Record, plan: Plan, wall_s: float, lost: int) -> dict[str, Any]:
    statuses: dict[str, dict[str, int]] = {}
    for (part, _), row in record.rows.items():
        counts = statuses.setdefault(part, {})
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    return {
        "aims": [asdict(aim) for aim in aims(record.rows)],
        "rows": statuses,
        "not_reached": [
            f"{part} {name}"
            for (part, name), row in record.rows.items()
            if row["status"] == NOT_REACHED
        ],
        "wall_s": round(wall_s, 1),
        "budget_s": plan.budget_s,
        "processes_lost": lost,
    }
