"""What a measurement store holds, workload by workload; one machine's part of it as a store of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tirgym.errors import InvalidValueError, UsageError
from tirgym.harness.hardware import cpu_model, fingerprint
from tirgym.harness.status import Status
from tirgym.harness.store import SETTLED, Context, Record, Store
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import load_workload, split_of

__all__ = ["Contents", "cpu_note", "export_store", "read_contents"]


@dataclass(frozen=True, slots=True)
class Contents:
    """What there is on one workload under one context."""

    context: Context
    split: Split | None
    """of the kernel's family, None for kernels outside the suites or not found here"""
    walks: int
    """answers to the compiler's questions that end in a settled verdict"""
    verdicts: Mapping[Status, int]
    """how many there are of each status, each machine code and level counted once"""
    best_speedup: float | None
    """over the unscheduled program, None without a pass"""


def read_contents(store: Store) -> list[Contents]:
    """One entry for each context, sorted as `Store.contexts`."""
    verdicts: dict[Context, Counter[Status]] = {}
    best: dict[Context, float] = {}
    for record in store.records():
        verdicts.setdefault(record.context, Counter())[record.status] += 1
        if record.measurement is not None:
            speedup = max(best.get(record.context, 0.0), record.measurement.speedup)
            best[record.context] = speedup
    return [
        Contents(
            context,
            _split(context.workload),
            sum(walk.settled for walk in store.walks(context)),
            dict(sorted(counts.items())),
            best.get(context),
        )
        for context, counts in verdicts.items()
    ]


def _split(workload: str) -> Split | None:
    try:
        return split_of(load_workload(workload.partition("#")[0], files=False).kernel)
    except UsageError:
        return None


def cpu_note(machine: str) -> str:
    """Name of the note that holds the CPU model of a machine."""
    return f"cpu of {machine}"


def export_store(source: Store, path: Path, target: Target, machine: str | None = None) -> Store:
    """A new store at `path` with what `source` holds of settled verdicts for `target` and `machine`.

    Programs and walks without such a verdict stay behind. `machine` None is the only one there is.
    Notes say the splits, the CPU and the versions. Raises InvalidValueError for a machine that is not
    clear or has nothing, and for a path that exists.
    """
    if path.exists():
        raise InvalidValueError("file to export to", str(path), "one that does not exist yet")
    held = sorted({c.machine for c in source.contexts() if c.target == target})
    if machine not in held and not (machine is None and len(held) == 1):
        accepted = f"one of {', '.join(held) or 'none'}, for {target}"
        raise InvalidValueError("machine to export", machine, accepted)
    machine = machine or held[0]
    made = Store(path)
    for record in source.records():
        context = record.context
        if (context.target, context.machine) == (target, machine) and _stands(record):
            made.put(record)
    contexts = made.contexts()
    for context in contexts:
        _copy_walks(source, made, context)
    keys = {
        (record.context.workload, record.context.versions, record.key) for record in made.records()
    }
    for program in source.programs():
        if program.target == target and (program.workload, program.versions, program.key) in keys:
            context = Context(program.workload, target, program.versions, machine)
            made.put_transforms(context, program.ir_key, program.transforms)
            _copy_code(source, made, context, program.ir_key)
    _note(source, made, contexts, machine)
    made.compact()
    return made


def _stands(record: Record) -> bool:
    return record.status in SETTLED or record.status is Status.ILLEGAL


def _copy_walks(source: Store, made: Store, context: Context) -> None:
    for walk in source.walks(context):
        if walk.settled:
            made.put_walk(context, walk.path, walk.ir_key, walk.source)
            _copy_code(source, made, context, walk.ir_key)


def _copy_code(source: Store, made: Store, context: Context, ir_key: str) -> None:
    code_key = source.code_key(context, ir_key)
    if code_key is not None:
        made.put_code_key(context, ir_key, code_key)


def _note(source: Store, made: Store, contexts: list[Context], machine: str) -> None:
    from importlib.metadata import version

    name = cpu_note(machine)
    cpu = source.notes().get(name, cpu_model() if machine == fingerprint() else "unknown")
    made.note(name, cpu)
    made.note("exported by", f"tirgym {version('tirgym')}")
    splits = {context.workload: str(_split(context.workload) or "") for context in contexts}
    made.note("splits", json.dumps(splits, sort_keys=True))
