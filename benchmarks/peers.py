"""Side by side with what people use today: `python -m tirgym.benchmarks.peers --out peers.jsonl`.

For each workload and seed, in one session: the default agent and MetaSchedule's search spend equal
measured trials behind the same gate; the best of their first 16 and of all trials are verified in
full and then timed against each other, interleaved; so are the libraries (NumPy, torch where it is
installed) against our best. No ratio here goes through the unscheduled program, and none compares
times of different minutes. `--shipped` adds what MetaSchedule takes with its own builder and runner,
as a user would call it, and what `optimize` takes right after it: run it on an idle machine. Every finished line is kept; a killed run goes on where it stopped.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tirgym.baselines.metaschedule import MetaScheduleAgent
from tirgym.baselines.optimize import optimize
from tirgym.benchmarks.command_line import run_command
from tirgym.benchmarks.metaschedule_shipped import search_apart, tune_as_shipped
from tirgym.benchmarks.peers_table import summary, table
from tirgym.errors import DamagedFileError, UnknownNameError
from tirgym.harness.agent import Budget
from tirgym.harness.backend import backend
from tirgym.harness.evaluation import Comparison
from tirgym.harness.hardware import compiler_versions, cpu_model
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Trial, best_within
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.target import Target
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.vendor import measure_vendor, vendor_libraries
from tirgym.harness.verification import verify_best
from tirgym.kernels_suite.registry import load_workload

__all__ = [
    "EARLY",
    "WORKLOADS",
    "Duel",
    "Shipped",
    "duel",
    "main",
]

WORKLOADS: Mapping[str, str] = {
    "matmul512": "tirgym://core-v0/matmul?m=512&n=512&k=512&dtype=float32",
    "matmul": "tirgym://core-v0/matmul?m=250&n=264&k=240&dtype=float32",
    "conv2d": "tirgym://core-v0/conv2d_padded?c=32&h=28&w=28&o=32&k=3&dtype=float32",
    "softmax": "tirgym://core-v0/softmax?m=256&n=1000&dtype=float32",
    "layernorm": "tirgym://core-v0/layernorm?m=128&n=4096&dtype=float32",
    "attention": "tirgym://core-v0/attention?heads=4&n=128&d=64&dtype=float32",
    "gemm_bias_gelu": "tirgym://core-v0/matmul_bias_gelu?m=128&n=256&k=512&dtype=float32",
    "transpose": "tirgym://core-v0/transpose?m=1024&n=1024&dtype=float32",
}
"""Label → workload URI."""
EARLY = 16
"""Trials of the early result."""
LIMIT_S = 3600.0
"""Of one tuning by MetaSchedule as it ships."""


@dataclass(frozen=True, slots=True)
class Duel:
    """One workload, one seed. Ratios are time of the other / time of ours: above 1 we are faster."""

    workload: str
    seed: int
    trials: int
    agent: str
    ours_us: float | None
    speedup: float | None
    """over the unscheduled program"""
    early_ratio: float | None
    """MetaSchedule's best of the first 16 / ours of the first 16"""
    ratio: float | None
    """MetaSchedule's best / ours, at all trials"""
    ratio_ci: tuple[float, float] | None
    peer_failures: int
    """trials of MetaSchedule that did not pass"""
    our_failures: int
    libraries: dict[str, float | None]
    """time of the library's call / ours, by library; None without a number"""
    ours_s: float
    """wall seconds, set-up and verification included"""
    peer_s: float
    """wall seconds of MetaSchedule's search on our evaluator, verification left out"""


@dataclass(frozen=True, slots=True)
class Shipped:
    """MetaSchedule with its own local builder and runner, and our search right after it."""

    workload: str
    trials: int
    wall_s: float
    best_us: float | None
    """by its own clock; its results are not checked by anyone"""
    ours_s: float
    """wall seconds of `optimize`, set-up and verification included"""
    ours_search_s: float
    """the same without verification, which MetaSchedule has none of"""


def _ratio(found: Comparison) -> float | None:
    """Time of the second over the first's."""
    return None if found.ratio is None else 1.0 / found.ratio


def duel(label: str, trials: int, seed: int, target: Target | None = None) -> Duel:
    """One workload, one seed."""
    workload = load_workload(WORKLOADS[label])
    target = backend("llvm").target() if target is None else target
    with LocalEvaluator(target, ":memory:", seed=seed) as evaluator:
        ours = optimize(workload, trials=trials, seed=seed, target=target, evaluator=evaluator)
    with LocalEvaluator(target, ":memory:", seed=seed) as evaluator:
        start = backend(target.backend).start(workload, target)
        vocabulary = default_vocabulary(target.backend)
        run = SearchRun(start, vocabulary, StaticCostModel(), evaluator, Budget(trials), seed)
        began = time.monotonic()
        run.run(MetaScheduleAgent())
        peer_s = time.monotonic() - began

        def winner(curve: Sequence[Trial], within: int) -> Program:
            ranked = best_within(curve, within)
            return verify_best(ranked, start, evaluator, sessions=1).candidate.program

        # ours first in each pair: ratios are time of the second / time of the first
        early = evaluator.compare(winner(run.trials, EARLY), winner(ours.curve, EARLY))
        final = evaluator.compare(winner(run.trials, trials), ours.program)
    return Duel(
        workload=label,
        seed=seed,
        trials=trials,
        agent=ours.agent,
        ours_us=ours.best_us,
        speedup=ours.speedup,
        early_ratio=early.ratio,
        ratio=final.ratio,
        ratio_ci=final.interval,
        peer_failures=_failures(run.trials),
        our_failures=_failures(ours.curve),
        libraries=_libraries(ours.program),
        ours_s=round(ours.seconds["total"], 2),
        peer_s=round(peer_s, 2),
    )


def _failures(curve: Sequence[Trial]) -> int:
    return sum(t.charged and not t.candidate.evaluation.passed for t in curve)


def _libraries(program: Program) -> dict[str, float | None]:
    """Time of each library's call / time of `program`, interleaved."""
    workload, target = program.workload, program.target
    module = backend(target.backend).module_json(program)
    found: dict[str, float | None] = {}
    for library in vendor_libraries(workload.kernel.name, target.backend):
        speedup = measure_vendor(workload, target, library, against=module).speedup
        found[library.partition("-")[0]] = None if speedup is None else 1.0 / speedup
    return found


class _Rows:
    """Finished rows, one JSON line each; a torn last line is dropped with a warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.duels: list[dict[str, Any]] = []
        self.shipped: list[dict[str, Any]] = []
        for line in self._lines():
            (self.shipped if "wall_s" in line else self.duels).append(line)

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        texts = self.path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(texts, 1):
            try:
                line = json.loads(text)
                line["workload"]
            except (ValueError, TypeError, KeyError):
                if number == len(texts):
                    print(f"{self.path}: the last line is torn and measured again", file=sys.stderr)
                    self.path.write_text("".join(t + "\n" for t in texts[:-1]), encoding="utf-8")
                    return
                problem = f"line {number} is no row"
                raise DamagedFileError(str(self.path), "table of peers", problem) from None
            yield line

    def add(self, row: Duel | Shipped) -> None:
        """Keep a row, in memory and on disk."""
        line = json.loads(json.dumps(asdict(row)))
        (self.shipped if isinstance(row, Shipped) else self.duels).append(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def has(self, rows: Sequence[Mapping[str, Any]], **fields: Any) -> bool:
        """Whether one of `rows` has these values."""
        return any(all(row[k] == v for k, v in fields.items()) for row in rows)


def _labels(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in WORKLOADS:
            raise UnknownNameError("workload of the comparison", name, list(WORKLOADS))
    return list(names)


def run(
    out: Annotated[Path, typer.Option(help="JSON lines; finished rows are not measured again.")],
    workload: Annotated[list[str] | None, typer.Option(help="Default: all.")] = None,
    trials: Annotated[int, typer.Option(min=EARLY)] = 64,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    shipped_workload: Annotated[
        list[str] | None, typer.Option("--shipped", help="Also time MetaSchedule as it ships.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure what is missing in `out`, then print the table."""
    labels, apart = _labels(workload or list(WORKLOADS)), _labels(shipped_workload or [])
    rows = _Rows(out)
    for seed in range(seeds):
        for label in labels:
            if not rows.has(rows.duels, workload=label, seed=seed, trials=trials):
                print(f"{label}, seed {seed}", file=sys.stderr, flush=True)
                rows.add(duel(label, trials, seed))
    for label in apart:
        if not rows.has(rows.shipped, workload=label, trials=trials):
            print(f"{label}, MetaSchedule as it ships", file=sys.stderr, flush=True)
            theirs = tune_as_shipped(WORKLOADS[label], trials, LIMIT_S)
            rows.add(
                Shipped(label, trials, *theirs, *search_apart(WORKLOADS[label], trials, LIMIT_S))
            )
    found = summary(rows.duels, rows.shipped)
    if as_json:
        head: dict[str, Any] = {"machine": cpu_model(), "target": str(backend("llvm").target())}
        head |= {"versions": compiler_versions(), "trials": trials, "seeds": seeds}
        print(json.dumps({**head, **found}, indent=2))
    else:
        Console().print(table(found))


def main() -> None:
    """Command line."""
    run_command("peers", run)


if __name__ == "__main__":
    main()
