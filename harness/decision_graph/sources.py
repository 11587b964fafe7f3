"""`read_runs`: the visits that a folder holds: run records (*.jsonl) and traces (*.json)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tirgym.errors import DamagedFileError, InvalidValueError
from tirgym.harness.run_record import SUFFIX, Visit
from tirgym.harness.status import Status
from tirgym.harness.trace import Trace, TraceResult

__all__ = ["Runs", "read_runs"]

_ACCEPTED = (
    "a folder with run records (tirgym optimize … --record DIR) or traces (--out DIR/t.json)"
)


@dataclass(frozen=True, slots=True)
class Runs:
    """What was read, in the order of file names and lines."""

    visits: tuple[Visit, ...]
    warnings: tuple[str, ...] = ()
    """what was left out, one line each"""


def read_runs(folder: str | os.PathLike[str]) -> Runs:
    """Every record and trace in `folder`, subfolders aside.

    A last line that was torn by a crash is left out with a warning, and so is whatever else cannot
    be read. A trace counts as one visit; its number is used if the trace says that it passed in
    full. Raises InvalidValueError if `folder` is none, or nothing is left.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file" if folder.exists() else "no such folder"
        raise InvalidValueError("folder of runs", str(folder), f"{_ACCEPTED}; this is {what}")
    visits: list[Visit] = []
    warnings: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.suffix == SUFFIX and path.is_file():
            visits += _read_record(path, warnings)
        elif path.suffix == ".json" and path.is_file():
            visits += _read_trace(path, warnings)
    if not visits:
        problem = f"; {warnings[0]}" if warnings else ""
        raise InvalidValueError("folder of runs", str(folder), _ACCEPTED + problem)
    return Runs(tuple(visits), tuple(warnings))


def _read_record(path: Path, warnings: list[str]) -> Iterator[Visit]:
    """The visits of one file; `warnings` gets what is left out, damaged lines in one sentence."""
    damaged: list[str] = []
    try:
        *whole, last = path.read_bytes().split(b"\n")
    except OSError as error:
        warnings.append(f"{path.name} is left out: {error.strerror}")
        return
    for number, line in enumerate([*whole, last], 1):
        if not line.strip():
            continue
        try:
            yield Visit.from_json(line.decode(), f"{path.name}, line {number}")
        except (DamagedFileError, UnicodeDecodeError) as error:
            if line is last:
                warnings.append(f"{path.name}: the last line is torn and left out")
            else:
                damaged.append(str(error))
    if damaged:
        lines = f"{len(damaged)} lines are" if len(damaged) > 1 else "a line is"
        warnings.append(f"{path.name}: {lines} left out: {damaged[0]}")


def _read_trace(path: Path, warnings: list[str]) -> Iterator[Visit]:
    """A trace as the one visit that it is."""
    try:
        trace = Trace.load(path)
    except DamagedFileError as error:
        warnings.append(f"{path.name} is left out: {error.problem}")
        return
    passed = _passed(trace.result)
    yield Visit(
        run=path.stem,
        agent=trace.agent,
        seed=trace.seed,
        workload=trace.workload,
        target=trace.target,
        transforms=trace.transforms,
        ir_key=trace.ir_key,
        status=Status.PASSED.value if passed else "",
        level="full" if passed else "",
        latency_us=passed.best_us if passed else None,
        speedup=passed.speedup if passed else None,
        code_key=trace.code_key,
    )


def _passed(result: TraceResult | None) -> TraceResult | None:
    """`result` if it is a number behind a pass; marks such as "unverified" are none."""
    if result is None or result.status != Status.PASSED or result.speedup is None:
        return None
    return result if result.speedup > 0 else None
