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
    one_line,
)
from tirgym.benchmarks.leaderboard.running import machine, versions
from tirgym.benchmarks.leaderboard.verdicts import Session, Standing, Verified, judge
from tirgym.errors import IllegalTransformError, InvalidValueError, TirgymError, UsageError
from tirgym.harness.replay import replay
from tirgym.harness.store import PROTOCOL_VERSION
from tirgym.harness.target import Target
from tirgym.harness.trace import Trace
from tirgym.kernels_suite.kernel import Workload, split_uri
from tirgym.kernels_suite.registry import (
    LOCAL_SUITE,
    SUITES,
    list_kernels,
    load_workload,
    opens_file,
)

__all__ = ["Row", "Submission", "check_submission"]

README = ("README.md", "README.txt", "README")
LARGEST = 4 << 20
"""Bytes of one trace file."""
MOST_STEPS = 1000
LONGEST_REASON = 1000
"""Characters of what is said about one file."""

Measure = Callable[[str, Target, Sequence[Job], int], list[Session]]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file."""

    file: str
    workload: str
    """canonical URI; as it stands in the trace where it names no workload of a suite"""
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
    """kernels of the suite without a good row at their default shape: they count 0.5 on its board"""

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
    return Submission(tuple(rows), tuple(problems), _missing(rows))


def _missing(rows: Sequence[Row]) -> tuple[str, ...]:
    """Kernels without a good row at their default shape, of every suite that a row names."""
    good = {row.workload for row in rows if row.ok}
    named = {row.workload.removeprefix("tirgym://").partition("/")[0] for row in rows}
    kernels = [kernel for suite in SUITES if suite in named for kernel in list_kernels(suite)]
    return tuple(kernel.name for kernel in kernels if Workload.of(kernel).uri not in good)


def _row(
    file: Path,
    folder: Path,
    target: Target,
    taken: dict[str, str],
    sessions: int,
    measure: Measure,
) -> Row:
    name = one_line(str(file.relative_to(folder)))
    try:
        trace = _read(file, folder)
    except TirgymError as error:
        return Row(name, "", False, one_line(str(error), LONGEST_REASON))
    claimed = trace.result.speedup if trace.result else None
    uri = trace.workload
    try:
        workload = _workload(uri)
        uri = workload.uri
        _require(trace, workload, target, taken)
        replay(trace)
    except (UsageError, IllegalTransformError) as error:
        reason = one_line(str(error), LONGEST_REASON)
        return Row(name, one_line(uri), False, reason, claimed)
    recipe = Recipe(RecipeKind.TRANSFORMS, trace.transforms)
    if not sessions:
        return Row(name, uri, True, "applies; not measured", claimed)
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


def _workload(uri: str) -> Workload:
    """The workload of a suite that `uri` names; a file is never opened, since opening runs it."""
    suite, _, _ = split_uri(uri)
    if suite == LOCAL_SUITE or opens_file(uri):
        accepted = "a workload URI of a suite (tirgym list): a submission brings no kernels"
        raise InvalidValueError("workload", uri, accepted)
    return load_workload(uri, files=False)


def _require(trace: Trace, workload: Workload, target: Target, taken: dict[str, str]) -> None:
    kernel, uri = workload.kernel, workload.uri
    own = [Workload.of(kernel, shape) for shape in (*kernel.train, *kernel.holdout)]
    if workload not in own:
        shapes = "; ".join(str(known) for known in own)
        raise InvalidValueError("workload", str(workload), f"a shape of the suite: {shapes}")
    if (trace.target.backend, trace.target.num_threads) != (target.backend, target.num_threads):
        accepted = f"{target.backend} with {target.num_threads}, as the baseline has it"
        raise InvalidValueError("target of the trace", str(trace.target), accepted)
    if len(trace.transforms) > MOST_STEPS:
        raise InvalidValueError("steps", len(trace.transforms), f"at most {MOST_STEPS}")
    if uri in taken:
        accepted = f"one trace for each workload ({taken[uri]} has it)"
        raise InvalidValueError("workload", uri, accepted)


def _record(uri: str, name: str, target: Target, answer: Answer) -> Record:
    here: Machine = machine()
    return Record(
        name, Kind.AGENT, uri, 0, (1,), Outcome.FINISHED, here, target, versions(),
        PROTOCOL_VERSION, answers=(answer,), curve=(Point(0, False, "passed", 1.0, 1.0, 0.0),),
    )  # fmt: skip
