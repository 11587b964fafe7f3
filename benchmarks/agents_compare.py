"""Search agents side by side: `python -m tirgym.benchmarks.agents_compare --out agents.jsonl`.

Each agent searches each workload with each seed; the best program of its first 16 trials and the
best of all are verified in full, against the unscheduled program in the same minute. Agents take
turns within a seed and a workload, so that a machine that changes its pace changes it for all.
Every finished row is kept; a killed run goes on where it stopped, and rows may be added to a file
later. `--agent mcts,space=macro` compares options of an agent.

The strongest agent, by the geometric mean of its speedups over the workloads, is what
`tirgym optimize` uses unless it is told otherwise: see `STRONGEST` in `baselines/registry.py`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tirgym.baselines.registry import make_agent, parse_options
from tirgym.benchmarks.command_line import run_command
from tirgym.benchmarks.kept_rows import KeptRows
from tirgym.errors import UnknownNameError
from tirgym.harness.agent import Agent, Budget
from tirgym.harness.backend import backend
from tirgym.harness.hardware import compiler_versions, cpu_model
from tirgym.harness.local_evaluator import LocalEvaluator
from tirgym.harness.search_run import SearchRun, best_within
from tirgym.harness.static_cost import StaticCostModel
from tirgym.harness.transforms import default_vocabulary
from tirgym.harness.verification import verify_best
from tirgym.kernels_suite.registry import load_workload

__all__ = ["AGENTS", "EARLY", "WORKLOADS", "Row", "compare", "main", "measure", "table"]

AGENTS = ("evolutionary", "beam", "mcts")

WORKLOADS: Mapping[str, str] = {
    "matmul": "tirgym://core-v0/matmul?m=250&n=264&k=240&dtype=float32",
    "conv2d": "tirgym://core-v0/conv2d_padded?c=32&h=28&w=28&o=32&k=3&dtype=float32",
    "softmax": "tirgym://core-v0/softmax?m=256&n=1000&dtype=float32",
    "layernorm": "tirgym://core-v0/layernorm?m=128&n=4096&dtype=float32",
    "attention": "tirgym://core-v0/attention?heads=4&n=128&d=64&dtype=float32",
    "gemm_bias_gelu": "tirgym://core-v0/matmul_bias_gelu?m=128&n=256&k=512&dtype=float32",
}
"""Label → workload URI."""

EARLY = 16
"""Trials of the early result."""


@dataclass(frozen=True, slots=True)
class Row:
    """One search."""

    workload: str
    agent: str
    """name, and options where they are not the defaults"""
    seed: int
    trials: int
    early: float | None
    """verified speedup over the unscheduled program, best of the first `EARLY` trials"""
    speedup: float | None
    """verified speedup of the best of all"""
    speedup_ci: tuple[float, float] | None
    used: int
    """trials spent"""
    failures: int
    """trials that did not pass"""
    stopped: str
    agent_s: float
    """wall seconds of the search outside the evaluator"""
    search_s: float
    """wall seconds of the search"""


def parse_agent(text: str) -> Agent:
    """The agent `name,option=value,…`; raises UsageError for what does not exist."""
    name, *options = text.split(",")
    return make_agent(name, **parse_options(name, options))


def measure(label: str, agent: str, seed: int, trials: int) -> Row:
    """One search and the verification of what it found."""
    workload, target = load_workload(WORKLOADS[label]), backend("llvm").target()
    with LocalEvaluator(target, ":memory:", seed=seed) as evaluator:
        start = backend(target.backend).start(workload, target)
        vocabulary = default_vocabulary(target.backend)
        run = SearchRun(start, vocabulary, StaticCostModel(), evaluator, Budget(trials), seed)
        began = time.monotonic()
        stopped = run.run(parse_agent(agent))
        search_s = time.monotonic() - began
        early = verify_best(best_within(run.trials, EARLY), start, evaluator)
        final = verify_best(best_within(run.trials, trials), start, evaluator)
    found = final.candidate.evaluation
    return Row(
        workload=label,
        agent=agent,
        seed=seed,
        trials=trials,
        early=early.candidate.evaluation.speedup,
        speedup=found.speedup,
        speedup_ci=found.measurement.speedup_ci if found.measurement else None,
        used=run.used,
        failures=sum(t.charged and not t.candidate.evaluation.passed for t in run.trials),
        stopped=stopped.value,
        agent_s=round(search_s - run.evaluator_s, 2),
        search_s=round(search_s, 2),
    )


# -- the comparison -------------------------------------------------------------------------


def compare(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Geometric means over seeds by workload, then over the workloads that all agents have.

    A search without a number counts 1: one keeps the unscheduled program. The strongest agent is
    that of the highest mean at all trials; ties go to the first.
    """
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    labels = list(dict.fromkeys(row["workload"] for row in rows))
    cells: dict[str, dict[str, dict[str, float]]] = {}
    for label in labels:
        for agent in agents:
            here = [r for r in rows if r["workload"] == label and r["agent"] == agent]
            if here:
                cells.setdefault(label, {})[agent] = {
                    "early": _geomean([r["early"] for r in here]),
                    "speedup": _geomean([r["speedup"] for r in here]),
                    "search_s": statistics.median(r["search_s"] for r in here),
                    "agent_s": statistics.median(r["agent_s"] for r in here),
                    "failures": float(sum(r["failures"] for r in here)),
                    "seeds": float(len(here)),
                }
    shared = [label for label in labels if len(cells[label]) == len(agents)]
    means = {
        agent: {
            field: _geomean([cells[label][agent][field] for label in shared])
            for field in ("early", "speedup")
        }
        for agent in agents
        if shared
    }
    strongest = max(means, key=lambda agent: means[agent]["speedup"]) if means else None
    return {"workloads": cells, "shared": shared, "means": means, "strongest": strongest}


def _geomean(values: Sequence[float | None]) -> float:
    return math.exp(statistics.fmean(math.log(max(value or 1.0, 1.0)) for value in values))


def table(found: Mapping[str, Any], trials: int) -> Table:
    """Speedups over the unscheduled program by workload and agent, early and at all trials."""
    agents = list(found["means"]) or sorted({a for row in found["workloads"].values() for a in row})
    made = Table(
        "workload",
        *(f"{agent} @{budget}" for agent in agents for budget in (EARLY, trials)),
        title="verified speedup over the unscheduled program, geometric mean over seeds",
        caption=f"strongest at {trials} trials: {found['strongest'] or 'nothing to compare'}",
    )
    lines = [*found["workloads"].items()]
    lines += [(f"geomean of {len(found['shared'])}", found["means"])] if found["means"] else []
    for label, row in lines:
        cells = [row.get(agent, {}).get(f) for agent in agents for f in ("early", "speedup")]
        made.add_row(label, *("-" if cell is None else f"{cell:.2f}" for cell in cells))
    return made


def run(
    out: Annotated[Path, typer.Option(help="JSON lines; finished rows are not measured again.")],
    agent: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME,OPTION=VALUE; repeatable.")
    ] = None,
    workload: Annotated[list[str] | None, typer.Option(help="Default: all.")] = None,
    trials: Annotated[int, typer.Option(min=EARLY)] = 64,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure what is missing in `out`, then print the table of all its rows."""
    agents, labels = agent or list(AGENTS), workload or list(WORKLOADS)
    for name in labels:
        if name not in WORKLOADS:
            raise UnknownNameError("workload of the comparison", name, list(WORKLOADS))
    for text in agents:
        parse_agent(text)
    kept = KeptRows(out, "comparison of agents", ("workload", "agent", "seed", "trials"))
    for seed in range(seeds):
        for label in labels:
            for text in agents:
                key = {"workload": label, "agent": text, "seed": seed, "trials": trials}
                if not kept.has(**key):
                    print(f"{label}, {text}, seed {seed}", file=sys.stderr, flush=True)
                    kept.add(asdict(measure(label, text, seed, trials)))
    found = compare([row for row in kept.rows if row["trials"] == trials])
    if as_json:
        head: dict[str, Any] = {"machine": cpu_model(), "target": str(backend("llvm").target())}
        head |= {"versions": compiler_versions(), "trials": trials, "early": EARLY}
        print(json.dumps({**head, **found}, indent=2))
    else:
        Console().print(table(found, trials))


def main() -> None:
    """Command line."""
    run_command("agents_compare", run)


if __name__ == "__main__":
    main()
