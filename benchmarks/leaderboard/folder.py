"""`BoardFolder`: the files of a board, appended line by line, so that a killed run loses one line.

plan.json        what is to be run: rows, workloads, trial counts, seeds
records.jsonl    one `Record` a line: what runs claim
sessions.jsonl   one `Session` a line: what a clean process measured
verified.jsonl   one verdict a line, made of the two above
board.json, ranking.md, …   the report
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tirgym.benchmarks.leaderboard.record import Record, parse_record
from tirgym.errors import DamagedFileError, EvaluationError, InvalidValueError
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.registry import opens_file

__all__ = ["BoardFolder", "Plan", "append_line", "plain", "read_lines"]

T = TypeVar("T")
PLAN_FORMAT = "tirgym-bench-plan-1"
_NO_FILES = "a kernel of a suite or an installed package; --files lets Python files be run"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a board consists of; its product is the denominator."""

    agents: tuple[str, ...]
    workloads: tuple[str, ...]
    """URIs"""
    trials: tuple[int, ...]
    seeds: tuple[int, ...]
    target: str = ""
    """as text; "" in plans that were written before it was"""
    seconds: float | None = None
    """time limit of one search"""

    def merged(self, other: Plan) -> Plan:
        """Both together; raises InvalidValueError if what makes rows comparable differs: trial counts,
        target, time limit."""
        for name, mine, theirs in (
            ("--trials", _list(self.trials), _list(other.trials)),
            ("--backend, --arch, --threads", self.target, other.target or self.target),
            ("--seconds", _limit(self.seconds), _limit(other.seconds)),
        ):
            if mine and mine != theirs:
                accepted = f"{mine}, as in the folder, or another folder"
                raise InvalidValueError(name, theirs, accepted)
        return Plan(
            tuple(dict.fromkeys((*self.agents, *other.agents))),
            tuple(dict.fromkeys((*self.workloads, *other.workloads))),
            self.trials,
            tuple(sorted({*self.seeds, *other.seeds})),
            self.target or other.target,
            self.seconds,
        )

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """(agent, workload, seed) of every row, in the order of running: agents take turns."""
        for seed in self.seeds:
            for workload in self.workloads:
                for agent in self.agents:
                    yield agent, workload, seed


class BoardFolder:
    """The folder at `path`. Reading keeps good lines and says what is wrong with the others.

    Kernels in Python files, which would be run, are refused unless `files`: a folder may be anybody's.
    """

    def __init__(self, path: Path, *, files: bool = False) -> None:
        self.path, self.files = path, files
        self.plan_path = path / "plan.json"
        self.records_path = path / "records.jsonl"
        self.sessions_path = path / "sessions.jsonl"
        self.verified_path = path / "verified.jsonl"
        self.shipped_path = path / "shipped.jsonl"

    def require(self) -> None:
        """Raise InvalidValueError unless a run has been here."""
        if not self.records_path.is_file():
            accepted = "a folder that `tirgym bench run --out` filled (it has a records.jsonl)"
            raise InvalidValueError("board", str(self.path), accepted)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else writes meanwhile; raises EvaluationError if somebody does."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"another process writes to {self.path}; wait for it, or take another folder"
                raise EvaluationError(text) from None
            yield

    def plan(self) -> Plan | None:
        """The plan, None without one; raises DamagedFileError, and InvalidValueError for a file."""
        plan = self._plan()
        for uri in plan.workloads if plan and not self.files else ():
            if opens_file(uri):
                raise InvalidValueError(f"workload in {self.plan_path}", uri, _NO_FILES)
        return plan

    def _plan(self) -> Plan | None:
        if not self.plan_path.exists():
            return None
        try:
            data = json.loads(self.plan_path.read_text(encoding="utf-8"))
            if data.pop("format") != PLAN_FORMAT:
                raise ValueError(f"its format is not {PLAN_FORMAT!r}")
            return Plan(
                tuple(map(str, data["agents"])),
                tuple(map(str, data["workloads"])),
                tuple(map(int, data["trials"])),
                tuple(map(int, data["seeds"])),
                str(data.get("target", "")),
                None if data.get("seconds") is None else float(data["seconds"]),
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise DamagedFileError(str(self.plan_path), f"plan ({PLAN_FORMAT})", problem) from None

    def save_plan(self, plan: Plan) -> None:
        """Write whole or not at all."""
        text = json.dumps({"format": PLAN_FORMAT, **asdict(plan)}, indent=2)
        write_whole(self.plan_path, text + "\n")

    def records(self) -> tuple[list[Record], list[str]]:
        """Good records, one for each key, and one line for each problem.

        The first record of a key counts, so that no run can be repeated until luck helps.
        """
        found, problems = read_lines(self.records_path, parse_record)
        first: dict[tuple[str, str, int], Record] = {}
        for number, record in found:
            where = f"{self.records_path}:{number}"
            refusal = self._refusal(record)
            if refusal:
                problems.append(f"{where}: {refusal}")
                continue
            if record.key in first:
                agent, workload, seed = record.key
                problems.append(
                    f"{where}: a second run of {agent} on {workload}, seed {seed}; the first counts"
                )
            first.setdefault(record.key, record)
        return list(first.values()), problems

    def _refusal(self, record: Record) -> str:
        """Why the workload of a record is not even looked up, "" if it is."""
        if self.files or not opens_file(record.workload):
            return ""
        return str(InvalidValueError("workload", record.workload, _NO_FILES))

    def expected(self, records: Sequence[Record]) -> Plan:
        """The plan, widened by what the records are about: dropping rows makes no board smaller."""
        longest = max((record.trials for record in records), key=len, default=())
        made = Plan(
            tuple(dict.fromkeys(record.agent for record in records)),
            tuple(dict.fromkeys(record.workload for record in records)),
            longest,
            tuple(sorted({record.seed for record in records})),
            str(records[0].target) if records else "",
            records[0].seconds if records else None,
        )
        plan = self.plan()
        if plan is None:
            return made
        wider = replace(made, trials=plan.trials, target=plan.target, seconds=plan.seconds)
        return plan.merged(wider)


def _list(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def _limit(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:g}"


def read_lines(path: Path, parse: Callable[[str], T]) -> tuple[list[tuple[int, T]], list[str]]:
    """What `parse` makes of each line, with its number; ValueErrors as lines of text."""
    found: list[tuple[int, T]] = []
    problems: list[str] = []
    if not path.exists():
        return found, problems
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, parse(line.decode("utf-8"))))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    return found, problems


def append_line(path: Path, text: str) -> None:
    """Add a line and have it on disk; half a line that a killed process left is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as JSON can hold them: NaN and infinities become None."""
    return {str(key): _plain(item) for key, item in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
