"""`read_store`: what a measurement store knows about the speed of programs, made again from steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tirgym.errors import IllegalTransformError, InvalidValueError, UsageError
from tirgym.harness.backend import backend
from tirgym.harness.desk import context_of
from tirgym.harness.evaluation import Level
from tirgym.harness.hardware import compiler_versions, fingerprint
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.store import PROTOCOL_VERSION, Record, Store, StoredProgram
from tirgym.harness.target import Target
from tirgym.harness.transforms import parse_transform
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import SUITES, load_workload, opens_file, split_of

__all__ = ["Dataset", "Sample", "read_store", "versions_text"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One program with what was measured."""

    program: Program
    log_speedup: float
    """natural logarithm of the speedup over the unscheduled program"""
    cut_off: bool = False
    """TOO_SLOW: the true value lies at or below `log_speedup`"""

    @property
    def workload(self) -> Workload:
        """What the program computes."""
        return self.program.workload

    @property
    def family(self) -> str:
        """Kernel family."""
        return self.program.workload.kernel.family

    @property
    def split(self) -> Split:
        """Split of the family. A kernel outside the suites is for training, unless a suite holds
        its family out."""
        kernel = self.program.workload.kernel
        splits = (suite.splits.get(kernel.family) for suite in SUITES.values())
        return split_of(kernel) or next(filter(None, splits), Split.TRAIN)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Samples of one target, machine and compiler, sorted by workload and steps."""

    samples: tuple[Sample, ...]
    target: Target
    machine: str
    """fingerprint"""
    skipped: Mapping[str, int]
    """why stored verdicts are not among the samples, and how many"""


def versions_text() -> str:
    """The compiler versions here, as verdicts are stored under."""
    return " ".join(f"{name}={text}" for name, text in compiler_versions().items())


def read_store(
    store: Store, target: Target, machine: str | None = None, *, files: bool = False
) -> Dataset:
    """All that `store` holds for `target` that was measured with these compiler versions.

    A kernel from a Python file is left out unless `files`, since the file would be run.
    Each machine code counts once, with the number of its full evaluation if there is one. `machine`
    None takes this machine's numbers, or those of the only machine there is. Raises
    InvalidValueError when the store has none for `target`, or of several other machines.
    """
    machine = _machine(store, target, machine)
    skipped: Counter[str] = Counter()
    verdicts = _verdicts(store, target, machine, skipped)
    ways = _ways(store, target)
    samples: list[Sample] = []
    for text, records in sorted(verdicts.items()):
        try:
            uri = text.partition("#")[0]
            if not files and opens_file(uri):
                skipped["of a kernel in a Python file, which is not run"] += len(records)
                continue
            workload = load_workload(uri, files=files)
        except UsageError:
            skipped["of a kernel that is not found here"] += len(records)
            continue
        if context_of(workload, target).workload != text:
            skipped["of a kernel that was edited since, or of another mode"] += len(records)
            continue
        samples += _samples(workload, target, records, ways.get(text, {}), skipped)
    return Dataset(tuple(samples), target, machine, dict(sorted(skipped.items())))


def _machine(store: Store, target: Target, wanted: str | None) -> str:
    contexts = store.contexts()
    machines = sorted({context.machine for context in contexts if context.target == target})
    if not machines:
        held = ", ".join(map(str, sorted({c.target for c in contexts}))) or "none, it is empty"
        accepted = f"a target that {store.path} has measurements for: {held}"
        raise InvalidValueError("target to learn", str(target), accepted)
    if wanted is None:
        wanted = machines[0] if len(machines) == 1 else fingerprint()
    if wanted not in machines:
        raise InvalidValueError("machine to learn", wanted, f"one of {', '.join(machines)}")
    return wanted


def _verdicts(
    store: Store, target: Target, machine: str, skipped: Counter[str]
) -> dict[str, dict[str, Record]]:
    """The record of each key of each stored workload."""
    versions = versions_text()
    found: dict[str, dict[str, Record]] = {}
    for record in store.records():
        context = record.context
        if (context.target, context.machine) != (target, machine):
            continue
        if (context.versions, context.protocol) != (versions, PROTOCOL_VERSION):
            skipped["of other compiler or protocol versions"] += 1
            continue
        records = found.setdefault(context.workload, {})
        if record.key not in records or record.level is Level.FULL:
            records[record.key] = record
    return found


def _ways(store: Store, target: Target) -> dict[str, dict[str, StoredProgram]]:
    """The shortest way to each key of each stored workload, the first of equals."""
    versions = versions_text()
    found: dict[str, dict[str, StoredProgram]] = {}
    for program in store.programs():
        if (program.target, program.versions) != (target, versions):
            continue
        ways = found.setdefault(program.workload, {})
        held = ways.get(program.key)
        if held is None or len(program.transforms) < len(held.transforms):
            ways[program.key] = program
    return found


def _samples(
    workload: Workload,
    target: Target,
    records: Mapping[str, Record],
    ways: Mapping[str, StoredProgram],
    skipped: Counter[str],
) -> Iterator[Sample]:
    """What can be learned about one workload, sorted by steps."""
    numbers: dict[str, float] = {}
    for key, record in records.items():
        number = _log_speedup(record)
        if number is None:
            skipped["without a number"] += 1
        elif key not in ways:
            skipped["without the steps of a program"] += 1
        else:
            numbers[key] = number
    wanted = sorted((ways[key] for key in numbers), key=lambda way: (way.transforms, way.ir_key))
    for way, program in _made(workload, target, wanted):
        if program is None:
            skipped["whose steps make another program here"] += 1
            continue
        cut_off = records[way.key].status is Status.TOO_SLOW
        yield Sample(program, numbers[way.key], cut_off)


def _log_speedup(record: Record) -> float | None:
    if record.measurement is not None:
        return math.log(record.measurement.speedup)
    if record.status is Status.TOO_SLOW and record.slowdown_limit:
        return -math.log(record.slowdown_limit)
    return None


def _made(
    workload: Workload, target: Target, wanted: list[StoredProgram]
) -> Iterator[tuple[StoredProgram, Program | None]]:
    """Each program made from its steps, None where that makes another; shared steps are made once."""
    path: list[Program] = [backend(target.backend).start(workload, target)]
    taken: tuple[str, ...] = ()
    for way in wanted:
        shared = 0
        for old, new in zip(taken, way.transforms, strict=False):
            if old != new:
                break
            shared += 1
        del path[shared + 1 :]
        try:
            for text in way.transforms[shared:]:
                path.append(path[-1].apply(parse_transform(text)))
        except (IllegalTransformError, UsageError):
            taken = way.transforms[: len(path) - 1]
            yield way, None
            continue
        taken = way.transforms
        yield way, path[-1] if path[-1].ir_key == way.ir_key else None
