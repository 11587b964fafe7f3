"""Does the gate reject right programs? Deep random schedules of every kernel, each rejection settled.

Run: python -m tirgym.benchmarks.false_rejections --json --out results.json

Every schedule is legal and has passed no static check yet; it is built and judged at full level by
the worker's gate. A rejection is settled by second witnesses (see `tirgym.benchmarks.settlement`).
A static check that calls a program illegal which the gate finds right is a false rejection too.
The run goes on where the file `--out` ends if that was made with the same options. Exit code 1 if
there is a false or unsettled rejection.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.benchmarks.settlement import Cause, Rejection, settle
from tirgym.errors import DamagedFileError, TargetMismatchError
from tirgym.harness.backend import backend
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.status import Status
from tirgym.harness.target import Target
from tirgym.harness.whole_file import write_whole
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.registry import list_kernels, load_kernel

if TYPE_CHECKING:
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.tensorir.program import TensorIRProgram
    from tirgym.harness.vocabulary import Vocabulary

__all__ = ["KernelRow", "Options", "study_kernel"]

_SETTLED = frozenset({Status.PASSED, Status.WRONG_RESULT, Status.FLAKY, Status.CRASH})
_DRAWS = 4
"""At most this many draws for each schedule that is wanted."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run does; two runs with equal options draw the same schedules."""

    schedules: int = 20
    """judged schedules for each kernel, each with at least `least_depth` transforms"""
    least_depth: int = 8
    most_depth: int = 14
    seed: int = 0
    threads: int = 1
    train_every: int = 5
    """every n-th schedule is of the first train shape; 0: none"""


@dataclass(slots=True)
class KernelRow:
    """What became of one kernel's schedules."""

    kernel: str
    judged: int = 0
    """passed or rejected, at least `least_depth` deep"""
    depth_sum: int = 0
    several_blocks: int = 0
    """judged schedules with two blocks or more"""
    train_shape: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    """of every draw; too slow, timeout and the like are not judged"""
    worst_error: float = 0.0
    """of those that passed, in units of the limit"""
    causes: dict[str, int] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)
    static_rejections: list[dict[str, Any]] = field(default_factory=list)
    """right programs that a static check refuses"""
    not_built: list[dict[str, Any]] = field(default_factory=list)
    """legal programs that the compiler does not build"""
    seconds: float = 0.0


def starts_of(kernel: Kernel, train_every: int) -> list[Workload]:
    """Workloads to draw from in turn: tiny, tiny rounded up to multiples of 8, and train shapes."""
    tiny = Workload.of(kernel, kernel.tiny_shape)
    rounded = {d: n if n < 6 else -(-n // 8) * 8 for d, n in kernel.tiny_shape.items()}
    small = [tiny, Workload.of(kernel, rounded)]
    if not train_every:
        return small
    found = [small[n % 2] for n in range(train_every - 1)]
    return [*found, Workload.of(kernel)]


def draw(
    workload: Workload, number: int, options: Options, vocabulary: Vocabulary, target: Target
) -> TensorIRProgram:
    """Schedule `number` of `workload`'s kernel: a function of the options alone."""
    from tirgym.harness.tensorir.program import TensorIRProgram
    from tirgym.harness.tensorir.random_schedules import random_program

    name = zlib.crc32(workload.kernel.name.encode())
    rng = np.random.default_rng([options.seed, name, number])
    depth = int(rng.integers(options.least_depth, options.most_depth + 1))
    start = TensorIRProgram.start(workload, target)
    return random_program(start, rng, depth, vocabulary)


def study_kernel(
    evaluator: LocalEvaluator, kernel: Kernel, options: Options, target: Target
) -> KernelRow:
    """Draw, judge and settle the schedules of one kernel."""
    from tirgym.harness.transforms import default_vocabulary

    vocabulary = default_vocabulary(target.backend)
    workloads = starts_of(kernel, options.train_every)
    row, started = KernelRow(kernel.name), time.perf_counter()
    for number in range(_DRAWS * options.schedules):
        if row.judged >= options.schedules:
            break
        workload = workloads[number % len(workloads)]
        program = draw(workload, number, options, vocabulary, target)
        if len(program.steps) < options.least_depth:
            _count(row.statuses, "too shallow")
            continue
        _judge(evaluator, program, row)
    row.seconds = round(time.perf_counter() - started, 2)
    return row


def _judge(evaluator: LocalEvaluator, program: TensorIRProgram, row: KernelRow) -> None:
    from tirgym.harness.evaluation_run import static_finding

    check = evaluator.check(program)
    _count(row.statuses, str(check.status))
    texts = [str(step) for step in program.steps]
    found = {"workload": program.workload.uri, "transforms": texts}
    if check.status is Status.COMPILE_ERROR:
        row.not_built.append({**found, "message": check.message})
    if check.status not in _SETTLED:
        return
    row.judged += 1
    row.depth_sum += len(program.steps)
    row.several_blocks += len(program.nest.blocks) > 1
    row.train_shape += program.workload == Workload.of(program.workload.kernel)
    if check.status is not Status.PASSED:
        rejection = settle(evaluator, program, check)
        row.rejections.append(rejection)
        _count(row.causes, rejection.cause)
        return
    if check.report is not None:
        row.worst_error = max(row.worst_error, check.report.worst_error)
    finding = static_finding(program)
    if finding:
        row.static_rejections.append({**found, "message": finding})


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Totals over all kernels."""
    statuses: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for row in rows:
        statuses.update(row["statuses"])
        causes.update(row["causes"])
    judged = sum(row["judged"] for row in rows)
    static = sum(len(row["static_rejections"]) for row in rows)
    false = causes[Cause.FALSE_REJECTION]
    return {
        "ok": false + static + causes[Cause.UNSETTLED] == 0,
        "kernels": len(rows),
        "judged": judged,
        "fewest_judged_of_a_kernel": min((row["judged"] for row in rows), default=0),
        "mean_depth": round(sum(row["depth_sum"] for row in rows) / max(1, judged), 2),
        "several_blocks": sum(row["several_blocks"] for row in rows),
        "train_shape": sum(row["train_shape"] for row in rows),
        "statuses": dict(sorted(statuses.items())),
        "false_rejections": false,
        "static_false_rejections": static,
        "unsettled": causes[Cause.UNSETTLED],
        "wrong_schedules": causes[Cause.WRONG_SCHEDULE],
        "miscompiles": causes[Cause.MISCOMPILE],
        "not_built": sum(len(row["not_built"]) for row in rows),
        "worst_error_of_passed": max((row["worst_error"] for row in rows), default=0.0),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


class _Results:
    """Rows so far, in the file that they are kept in."""

    def __init__(self, path: Path | None, options: Options, target: Target) -> None:
        self.path = path
        versions = compiler_versions()
        self.head = {"options": asdict(options), "target": str(target), "versions": versions}
        self.rows: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
                head = {name: data[name] for name in self.head}
                rows = {row["kernel"]: row for row in data["rows"]}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise DamagedFileError(str(path), "table of rejections", str(error)) from None
            if head != self.head:
                raise TargetMismatchError(
                    f"{path} was made with {head}; give another file, or the same options"
                )
            self.rows = rows

    def to_json(self) -> dict[str, Any]:
        rows = list(self.rows.values())
        return {**self.head, "summary": summary(rows), "rows": rows}

    def add(self, row: KernelRow) -> None:
        self.rows[row.kernel] = asdict(row)
        if self.path is not None:
            write_whole(self.path, json.dumps(self.to_json(), indent=1) + "\n")


def study(
    kernels: Sequence[Kernel],
    options: Options,
    out: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Study `kernels`, those in `out` not again; the whole table as JSON values."""
    from tirgym.harness.local_evaluator import LocalEvaluator

    target = backend("llvm").target(num_threads=options.threads)
    results = _Results(out, options, target)
    for kernel in kernels:
        if kernel.name in results.rows:
            continue
        # A store and workers of its own for each kernel: nothing is carried over.
        with LocalEvaluator(target, ":memory:", seed=options.seed) as evaluator:
            row = study_kernel(evaluator, kernel, options, target)
        results.add(row)
        if progress is not None:
            progress(f"{kernel.name}: {row.judged} judged, {row.statuses}, {row.causes or 'clean'}")
    return results.to_json()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 without false and unsettled rejections, else 1."""
    default = Options()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", help="default: every kernel of core-v0")
    parser.add_argument("--schedules", type=int, default=default.schedules)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--threads", type=int, default=default.threads)
    parser.add_argument("--train-every", type=int, default=default.train_every)
    parser.add_argument("--out", type=Path, help="file to keep rows in and to go on from")
    parser.add_argument("--json", action="store_true", help="the whole table on stdout")
    given = parser.parse_args(arguments)
    options = replace(
        default,
        schedules=given.schedules,
        seed=given.seed,
        threads=given.threads,
        train_every=given.train_every,
    )
    kernels = [load_kernel(name) for name in given.kernels] or list(list_kernels("core-v0"))

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    table = study(kernels, options, given.out, announce)
    print(json.dumps(table if given.json else table["summary"], indent=2))
    return 0 if table["summary"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
