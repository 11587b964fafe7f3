"""`recorded_steps`: what decision logs and run records say about the steps of a trace.

Both are files of JSON lines: `CompileHarness.save_history` writes `Event`s, `RunRecord` writes
`Visit`s. A folder stands for all its .jsonl files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tirgym.errors import DamagedFileError
from tirgym.harness.explain_trace import Measured
from tirgym.harness.program import Program
from tirgym.harness.run_record import FORMAT, SUFFIX, Visit
from tirgym.harness.status import Status

__all__ = ["recorded_steps"]

_WHAT = "decision log"
_EXPECTED = "lines of CompileHarness.save_history or of a run record"


class _Found(NamedTuple):
    """A verdict on one program."""

    way: str
    """transforms from the unscheduled program on, with semicolons; "" if only the key is known"""
    ir_key: str
    full: bool
    """a verdict on fresh inputs, against the unscheduled program"""
    measured: Measured


def recorded_steps(
    path: str | os.PathLike[str], programs: tuple[Program, ...]
) -> dict[int, Measured]:
    """The recorded verdicts on `programs` by number; full ones before others, then the latest.

    Lines about other workloads, targets or programs are passed over. Raises DamagedFileError.
    """
    uri, target = programs[0].workload.uri, programs[0].target
    found: dict[int, _Found] = {}
    ways = ["; ".join(map(str, program.steps)) for program in programs]
    for file in _files(Path(path)):
        workload = ""
        for number, data in _lines(file):
            place = f"{file}, line {number}"
            if data.get("format") == FORMAT:
                visit = Visit.from_json(json.dumps(data), place)
                seen = _visited(visit) if (visit.workload, visit.target) == (uri, target) else None
            else:
                event = _event(data, place)
                workload = event["subject"] if event["action"] == "load" else workload
                seen = _judged(event) if workload == uri else None
            if seen is not None:
                _keep(found, seen, programs, ways)
    return {number: each.measured for number, each in sorted(found.items())}


def _keep(
    found: dict[int, _Found], seen: _Found, programs: tuple[Program, ...], ways: list[str]
) -> None:
    """Put `seen` where it belongs, unless something better stands there."""
    for number, program in enumerate(programs):
        same = seen.way == ways[number] if seen.way or not seen.ir_key else False
        if same or (seen.ir_key and seen.ir_key == program.ir_key):
            before = found.get(number)
            if before is None or seen.full or not before.full:
                found[number] = seen


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
        if not files:
            raise DamagedFileError(str(path), _WHAT, f"the folder has no {SUFFIX} file")
        return files
    if not path.exists():
        raise DamagedFileError(str(path), _WHAT, "there is no such file")
    return [path]


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and JSON object of each line. A last line without an end was being written."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise DamagedFileError(str(path), _WHAT, problem) from None
    whole = text[: text.rfind("\n") + 1] if "\n" in text else text
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            problem = f"line {number} is no JSON object; expected {_EXPECTED}"
            raise DamagedFileError(str(path), _WHAT, problem)
        yield number, data


_FIELDS: dict[str, tuple[type, ...]] = {
    "action": (str,),
    "subject": (str,),
    "verdict": (str,),
    "ir_key": (str,),
    "message": (str,),
    "latency_us": (int, float, type(None)),
    "speedup": (int, float, type(None)),
}


def _event(data: dict[str, Any], place: str) -> dict[str, Any]:
    """A line of a decision log with the fields that are read here."""
    for name, kinds in _FIELDS.items():
        if name not in data or not isinstance(data[name], kinds) or isinstance(data[name], bool):
            problem = f"field {name} is missing or of another type; expected {_EXPECTED}"
            raise DamagedFileError(place, _WHAT, problem)
    return data


def _judged(event: dict[str, Any]) -> _Found | None:
    """The verdict of an event, if it is one on a known program.

    A search names the transforms; `compile_and_benchmark` names the level, and the key is that of
    the judged program unless the harness went back.
    """
    if event["action"] != "evaluate":
        return None
    level = event["subject"]
    by_key = level in ("training", "full")
    stays = event["verdict"] in (Status.PASSED, Status.NOISY, Status.SUSPECT, Status.TOO_SLOW)
    if by_key and not stays:
        return None
    made = Measured(
        event["verdict"],
        "recorded",
        event["latency_us"],
        event["speedup"],
        message=event["message"],
    )
    return _Found("" if by_key else level, event["ir_key"] if by_key else "", level == "full", made)


def _visited(visit: Visit) -> _Found | None:
    if not visit.status:
        return None
    made = Measured(
        visit.status, "recorded", visit.latency_us, visit.speedup, message=visit.message
    )
    return _Found("; ".join(visit.transforms), visit.ir_key, visit.level == "full", made)
