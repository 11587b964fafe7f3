"""`check_submission`: a folder with traces and a README, row by row: what it would be worth here.

Traces are data. A submission is read as text, and nothing in it is executed but transforms of the
vocabulary; claims, versions and keys in it are compared and never believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tirgym.benchmarks.leaderboard.measuring import Job, measure_apart
from tirgym.benchmarks.leaderboard.record import (
    Answer,
    Claim,
    Kind,
    Machine,
    Outcome,
    Point,
    Recipe,
    RecipeKind,
    Record,
)
from tirgym.benchmarks.leaderboard.running import machine, versions
from tirgym.benchmarks.leaderboard.verdicts import Session, Standing, Verified, judge
from tirgym.errors import IllegalTransformError, InvalidValueError, TirgymError, UsageError
from tirgym.harness.replay import replay
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.registry import list_kernels, load_workload

__all__ = ["Row", "Submission", "check_submission"]

README = ("README.md", "README.txt", "README")
LARGEST = 4 << 20
"""Bytes of one trace file."""
MOST_STEPS = 1000

Measure = Callable[[str, Target, Sequence[Job], int], list[Session]]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file."""

    file: str
    workload: str
    ok: bool
    reason: str = ""
    claimed: float | None = None
    verified: Verified | None = None
    """None if it was refused before it was measured, or nothing was to be measured"""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Submission:
    """The report on a folder."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    """about the folder as a whole"""
    missing: tuple[str, ...]
    """kernels of the suite without a good row: they count 0.5 on a board"""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; a submission may leave out kernels."""
        return not self.problems and bool(self.rows) and all(row.ok for row in self.rows)


def check_submission(
    folder: Path,
    target: Target,
    sessions: int,
    on_row: Callable[[Row], None] = lambda row: None,
    measure: Measure = measure_apart,
) -> Submission:
    """Check every `*.json` in `folder`; with `sessions` 0 nothing is compiled or measured.

    Raises InvalidValueError unless `folder` is a folder with traces.
    """
    files = sorted(folder.glob("**/*.json")) if folder.is_dir() else []
    if not files:
        accepted = "a folder with traces (*.json of `tirgym optimize --out`) and a README"
        raise InvalidValueError("submission", str(folder), accepted)
    problems = []
    if not any((folder / name).is_file() for name in README):
        problems.append("there is no README that says what made the traces")
    rows: list[Row] = []
    taken: dict[str, str] = {}
    for file in files:
        row = _row(file, folder, target, taken, sessions, measure)
        taken.setdefault(row.workload, row.file)
        rows.append(row)
        on_row(row)
    good = {load_workload(row.workload).kernel.name for row in rows if row.ok}
    suites = {load_workload(row.workload).kernel.suite for row in rows if row.ok}
    wanted = [kernel.name for suite in sorted(suites) for kernel in list_kernels(suite)]
    missing = tuple(name for name in wanted if name not in good)
    return Submission(tuple(rows), tuple(problems), missing)


def _row(
    file: Path,
    folder: Path,
    target: Target,
    taken: dict[str, str],
    sessions: int,
    measure: Measure,
) -> Row:
    name = str(file.relative_to(folder))
    try:
        trace = _read(file, folder)
    except TirgymError as error:
        return Row(name, "", False, str(error))
    claimed = trace.result.speedup if trace.result else None
    try:
        _require(trace, target, taken)
        replay(trace)
    except (UsageError, IllegalTransformError) as error:
        return Row(name, trace.workload, False, str(error), claimed)
    recipe = Recipe(RecipeKind.TRANSFORMS, trace.transforms)
    if not sessions:
        return Row(name, trace.workload, True, "applies; not measured", claimed)
    uri = load_workload(trace.workload).uri
    found = [
        session
        for number in range(sessions)
        for session in measure(uri, target, [Job(recipe, Kind.AGENT, number == 0)], number)
    ]
    claim = None if claimed is None else Claim("passed", claimed)
    answer = Answer(1, recipe, claim=claim)
    verdict = judge(_record(uri, name, target, answer), 1, answer, found, sessions)
    good = verdict.standing is Standing.VERIFIED and verdict.claim_holds is not False
    return Row(name, uri, good, verdict.reason, claimed, verdict)


def _read(file: Path, folder: Path) -> Trace:
    """The trace of a file that lies in `folder` and is not too large."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise InvalidValueError(
            "trace", str(file), "a file in the submission, not a link out of it"
        )
    if file.stat().st_size > LARGEST:
        raise InvalidValueError("size of trace", file.stat().st_size, f"at most {LARGEST} bytes")
    return Trace.load(file)


def _require(trace: Trace, target: Target, taken: dict[str, str]) -> None:
    workload = load_workload(trace.workload) if _in_suite(trace.workload) else None
    if workload is None:
        accepted = "a workload URI of a suite (tirgym list): a submission brings no kernels"
        raise InvalidValueError("workload", trace.workload, accepted)
    if (trace.target.backend, trace.target.num_threads) != (target.backend, target.num_threads):
        accepted = f"{target.backend} with {target.num_threads}, as the baseline has it"
        raise InvalidValueError("target of the trace", str(trace.target), accepted)
    if len(trace.transforms) > MOST_STEPS:
        raise InvalidValueError("steps", len(trace.transforms), f"at most {MOST_STEPS}")
    if trace.workload in taken:
        accepted = f"one trace for each workload ({taken[trace.workload]} has it)"
        raise InvalidValueError("workload", trace.workload, accepted)


def _in_suite(uri: str) -> bool:
    """Whether `uri` names a suite's kernel; a file is never opened, since opening runs it."""
    return uri.startswith("tirgym://") and ".py" not in uri and not uri.startswith("tirgym://local")


def _record(uri: str, name: str, target: Target, answer: Answer) -> Record:
    here: Machine = machine()
    return Record(
        name, Kind.AGENT, uri, 0, (1,), Outcome.FINISHED, here, target, versions(),
        PROTOCOL_VERSION, answers=(answer,), curve=(Point(0, False, "passed", 1.0, 1.0, 0.0),),
    )  # fmt: skip
