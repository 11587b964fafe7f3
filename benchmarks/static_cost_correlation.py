"""Does the static cost rank schedules as the clock does? `python -m tirgym.benchmarks.static_cost_correlation --json`.

Random legal schedules of each kernel, the unscheduled program among them, are gated and timed by
the real evaluator, each interleaved with the unscheduled program; Spearman's rank correlation is
between predicted time and measured time relative to it. Schedules cut off as too slow count with
the limit, since they are at least that slow; other verdicts count with none and are listed. The
constants of the model were fitted on kernels of the training families only, so the report keeps
training families and the others apart.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Evaluation
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.status import Status
from tirgym.harness.tensorir.program import TensorIRProgram
from tirgym.harness.tensorir.random_schedules import random_program
from tirgym.harness.transforms import default_vocabulary
from tirgym.kernels_suite.kernel import Split, Workload
from tirgym.kernels_suite.registry import load_kernel, split_of
from tirgym.performance_model.scores import spearman

__all__ = ["KERNELS", "KernelReport", "Report", "main", "measure", "spearman"]

KERNELS = (
    "matmul",
    "conv2d",
    "layernorm",
    "row_sum",
    "transpose",
    "stencil2d",
    "softmax",
    "batch_matmul",
    "max_pool2d",
    "attention",
    "depthwise_conv2d",
    "mlp",
)
"""Half of them in training families, half not."""


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel: how well predictions rank its schedules."""

    kernel: str
    split: str
    schedules: int
    """that have a measured time, too slow ones included"""
    verdicts: dict[str, int]
    spearman: float | None
    """None with fewer than three schedules or no spread"""
    best_speedup: float
    best_of_five: float
    """best speedup among the five schedules that were predicted to be fastest, of equals the first drawn"""


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels, and the two groups of families apart."""

    target: str
    seed: int
    kernels: tuple[KernelReport, ...]
    mean: float | None
    median: float | None
    mean_training_families: float | None
    mean_other_families: float | None
    predict_us: float
    """mean CPU time of one prediction, loop nest apart"""


def _relative_time(evaluation: Evaluation) -> float | None:
    """Time over that of the unscheduled program; None without a measured time."""
    if evaluation.measurement is not None:
        return 1.0 / evaluation.measurement.speedup
    return evaluation.slowdown_limit if evaluation.status is Status.TOO_SLOW else None


def _schedules(name: str, count: int, seed: int, threads: int) -> list[TensorIRProgram]:
    """The unscheduled program and random ones of 1 to 14 steps, all different."""
    compiler = backend("llvm")
    target = compiler.target(num_threads=threads)
    start = compiler.start(Workload.of(load_kernel(name)), target)
    assert isinstance(start, TensorIRProgram)
    vocabulary = default_vocabulary("llvm")
    found = {start.ir_key: start}
    for number in range(3 * count):
        if len(found) >= count:
            break
        rng = np.random.default_rng([seed, number])
        program = random_program(start, rng, int(rng.integers(1, 15)), vocabulary)
        found.setdefault(program.ir_key, program)
    return list(found.values())


def _kernel_report(
    name: str, programs: Sequence[TensorIRProgram], evaluations: Sequence[Evaluation]
) -> KernelReport:
    model, split = StaticCostModel(), split_of(load_kernel(name))
    timed = [
        (model.predict_us(program), time_)
        for program, evaluation in zip(programs, evaluations, strict=True)
        if (time_ := _relative_time(evaluation)) is not None
    ]
    predicted = [pair[0] for pair in timed]
    measured = [pair[1] for pair in timed]
    five = sorted(timed, key=lambda pair: pair[0])[:5]
    return KernelReport(
        kernel=name,
        split=split.value if split is not None else "",
        schedules=len(timed),
        verdicts=dict(sorted(Counter(e.status.value for e in evaluations).items())),
        spearman=spearman(predicted, measured),
        best_speedup=1.0 / min(measured),
        best_of_five=1.0 / min(pair[1] for pair in five),
    )


def _mean(rows: Sequence[KernelReport]) -> float | None:
    values = [row.spearman for row in rows if row.spearman is not None]
    return statistics.fmean(values) if values else None


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def measure(
    kernels: Sequence[str] = KERNELS,
    schedules: int = 30,
    seed: int = 0,
    threads: int = 1,
    console: Console | None = None,
) -> Report:
    """Draw, evaluate and predict; raises UnknownNameError for an unknown kernel."""
    reports: list[KernelReport] = []
    seconds, predictions = 0.0, 0
    target = backend("llvm").target(num_threads=threads)
    for name in kernels:
        programs = _schedules(name, schedules, seed, threads)
        for program in programs:
            program.nest  # noqa: B018 - read before the clock starts
        model, started = StaticCostModel(), time.process_time()
        for program in programs:
            model.predict_us(program)
        seconds += time.process_time() - started
        predictions += len(programs)
        with LocalEvaluator(target, store=":memory:", seed=seed) as evaluator:
            evaluations = [evaluator.evaluate(program) for program in programs]
        reports.append(_kernel_report(name, programs, evaluations))
        if console is not None:
            console.print(f"{name}: {_shown(reports[-1].spearman)} over {reports[-1].schedules}")
    found = [row.spearman for row in reports if row.spearman is not None]
    return Report(
        target=str(target),
        seed=seed,
        kernels=tuple(reports),
        mean=_mean(reports),
        median=statistics.median(found) if found else None,
        mean_training_families=_mean([row for row in reports if row.split == Split.TRAIN.value]),
        mean_other_families=_mean([row for row in reports if row.split != Split.TRAIN.value]),
        predict_us=seconds / predictions * 1e6,
    )


def main(
    kernel: Annotated[list[str] | None, typer.Option(help="kernel; may be repeated")] = None,
    schedules: Annotated[int, typer.Option(min=3, help="schedules of each kernel")] = 30,
    seed: Annotated[int, typer.Option(help="seed of the random schedules")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="threads of the target")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable output")] = False,
) -> None:
    """Rank correlation of the static cost with measured time."""
    progress = Console(stderr=True)
    report = measure(kernel or KERNELS, schedules, seed, threads, progress)
    if as_json:
        print(json.dumps(asdict(report), indent=2))
        return
    table = Table("kernel", "split", "schedules", "Spearman", "best", "best of five")
    for row in report.kernels:
        numbers = _shown(row.spearman), f"{row.best_speedup:.2f}x", f"{row.best_of_five:.2f}x"
        table.add_row(row.kernel, row.split, str(row.schedules), *numbers)
    console = Console()
    console.print(table)
    console.print(
        f"mean {_shown(report.mean)}, median {_shown(report.median)}; training families "
        f"{_shown(report.mean_training_families)}, others {_shown(report.mean_other_families)}; "
        f"{report.predict_us:.0f} µs a prediction"
    )


if __name__ == "__main__":
    typer.run(main)
