"""How well do learned models rank programs of kernels they never saw? `python -m tirgym.benchmarks.model_report --store STORE --json`.

Trees and the graph network learn from the training families of the suite and are judged, beside the
static cost, on the programs of the other families that the store holds. With `--leave-one-out` each
family in turn is judged by trees that learned from all others. With `--programs` the store is filled
first, or goes on being filled. Rank correlation, recall of the five fastest, the best of the five
predicted to be fastest over the best of all, and the share of truths inside the 80 % intervals, as
means over workloads.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tirgym.harness.backend import backend
from tirgym.harness.hardware import cpu_model
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.replay_evaluator import stored_target
from tirgym.harness.store import Store
from tirgym.harness.target import Target
from tirgym.kernels_suite.kernel import Split
from tirgym.kernels_suite.registry import list_kernels, load_workload
from tirgym.performance_model.dataset import Dataset, read_store
from tirgym.performance_model.learner import LEARNERS
from tirgym.performance_model.report import (
    WorkloadReport,
    held_out,
    leave_one_out,
    means,
    require_each_can_be_left_out,
)
from tirgym.performance_model.training import train

__all__ = ["KindReport", "Report", "main", "report"]

_TIMED = 64
"""Programs that the time of a prediction is taken from."""


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind of model."""

    kind: str
    train_cpu_s: float
    """CPU seconds to train all members, the making of the stored programs apart"""
    predict_cpu_ms: float
    """CPU milliseconds of one prediction of a new program, its analysis included"""
    means: dict[str, Any]
    """by split: scores of the model and of the static cost"""
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found."""

    target: str
    cpu: str
    cores: int
    load: float
    """average number of running processes while the report was made; more than cores: busy"""
    seed: int
    programs: dict[str, int]
    """by split"""
    kernels: dict[str, int]
    """kernels by split"""
    skipped: dict[str, int]
    held_out: tuple[KindReport, ...]
    leave_one_out: dict[str, Any]
    """means of trees; empty unless asked for"""


def report(
    dataset: Dataset,
    kinds: Sequence[str] = tuple(LEARNERS),
    seed: int = 0,
    leave_out: bool = False,
    console: Console | None = None,
) -> Report:
    """Train and judge; raises InvalidValueError for a store with too little in it."""
    if leave_out:
        require_each_can_be_left_out(dataset)
    made = []
    for kind in kinds:
        if console is not None:
            console.print(f"training {kind}")
        made.append(_kind_report(dataset, kind, seed))
    if leave_out and console is not None:
        console.print("leaving families out")
    left_out: list[WorkloadReport] = leave_one_out(dataset, "trees", seed) if leave_out else []
    kernels = {(sample.split, sample.workload.kernel.name) for sample in dataset.samples}
    return Report(
        target=str(dataset.target),
        cpu=cpu_model(),
        cores=os.cpu_count() or 1,
        load=round(os.getloadavg()[1], 1),
        seed=seed,
        programs=_by_split([sample.split for sample in dataset.samples]),
        kernels=_by_split([split for split, _ in kernels]),
        skipped=dict(dataset.skipped),
        held_out=tuple(made),
        leave_one_out=_rounded(means(left_out)) if left_out else {},
    )


def _by_split(splits: Sequence[Split]) -> dict[str, int]:
    return dict(sorted(Counter(split.value for split in splits).items()))


def _kind_report(dataset: Dataset, kind: str, seed: int) -> KindReport:
    began = time.process_time()
    model = train(dataset, kind, seed)
    trained = time.process_time() - began
    outside = [s.program for s in dataset.samples if s.family not in model.header.families]
    rng = np.random.default_rng(seed)
    timed = [outside[i] for i in rng.choice(len(outside), min(_TIMED, len(outside)), False)]
    for program in timed:  # the unscheduled programs are looked at before the clock starts
        model.start_cost(program)
    began = time.process_time()
    for program in timed:
        model.predict_us(program)
    predicting = (time.process_time() - began) / max(1, len(timed))
    rows = held_out(model, dataset)
    return KindReport(
        kind=kind,
        train_cpu_s=round(trained, 1),
        predict_cpu_ms=round(predicting * 1e3, 2),
        means=_rounded(means(rows)),
        rows=tuple(_rounded(asdict(row)) for row in rows),
    )


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its numbers to three decimals."""
    made: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            value = _rounded(value)
        made[name] = round(value, 3) if isinstance(value, float) else value
    return made


def _fill(path: Path, target: Target, kernels: Sequence[str], programs: int, seed: int) -> None:
    from tirgym.performance_model.recording import record

    names = kernels or [f"{kernel.suite}/{kernel.name}" for kernel in list_kernels("core-v0")]
    with LocalEvaluator(target, path) as evaluator:
        record([load_workload(name) for name in names], target, evaluator, programs, seed)


def _lines(found: Report) -> list[tuple[str, ...]]:
    """Rows of the table: each model and the static cost, on each group."""
    lines: list[tuple[str, ...]] = []
    groups = {"held out: " + kind.kind: kind.means for kind in found.held_out}
    if found.leave_one_out:
        groups["leave one out: trees"] = found.leave_one_out
    for name, by_split in groups.items():
        for split, group in by_split.items():
            for who in ("model", "static"):
                score = group[who]
                figures = (
                    "" if score[field] is None else f"{score[field]:.2f}"
                    for field in ("spearman", "recall", "best", "error", "coverage")
                )
                lines.append((name, split, who, str(group["workloads"]), *figures))
    return lines


def main(
    store: Annotated[Path, typer.Option(help="measurement store")],
    programs: Annotated[
        int, typer.Option(min=0, help="record so many programs of each kernel first")
    ] = 0,
    kernel: Annotated[list[str] | None, typer.Option(help="to record; may be repeated")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="of model; may be repeated")] = None,
    leave_one_out: Annotated[bool, typer.Option(help="also leave each family out")] = False,
    seed: Annotated[int, typer.Option(min=0, help="seed of recording and training")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="threads of the target")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Learned models and the static cost on kernels of held-out families."""
    progress = Console(stderr=True)
    target = backend("llvm").target(num_threads=threads)
    if programs:
        progress.print("recording")
        _fill(store, target, kernel or [], programs, seed)
    opened = Store(store, read_only=True)
    dataset = read_store(opened, stored_target(opened, target))
    opened.close()
    found = report(dataset, kind or tuple(LEARNERS), seed, leave_one_out, progress)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    columns = ("", "split", "by", "workloads", "Spearman", "recall", "best", "error", "coverage")
    table = Table(*columns)
    for line in _lines(found):
        table.add_row(*line)
    console = Console()
    console.print(table)
    for each in found.held_out:
        console.print(
            f"{each.kind}: {each.train_cpu_s} s to train, {each.predict_cpu_ms} ms a prediction"
        )


if __name__ == "__main__":
    typer.run(main)
