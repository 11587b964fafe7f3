"""`write_report`: tables with intervals, and learning curves, of a transfer study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.benchmarks.leaderboard.folder import BoardFolder, plain
from tirgym.benchmarks.leaderboard.record import Record
from tirgym.benchmarks.leaderboard.running import machine, versions
from tirgym.benchmarks.leaderboard.statistics import Scores, estimate, geomean, ranked
from tirgym.benchmarks.transfer.plan import GROUPS, TransferPlan
from tirgym.harness.whole_file import write_whole

__all__ = ["summarize", "write_report"]

Curve = list[tuple[int, float]]
"""(steps, geometric mean of the predicted speedups on the val kernels)"""


def write_report(plan: TransferPlan, folder: Path) -> dict[str, Any]:
    """Write `report.json`, `report.md` and, with matplotlib, `curves.png`; answers the first."""
    records, problems = BoardFolder(folder).records()
    curves = _curves(plan, folder)
    found = plain({**summarize(plan, records, curves), "problems": problems})
    write_whole(folder / "report.json", json.dumps(found, indent=2) + "\n")
    write_whole(folder / "report.md", _markdown(plan, found))
    if find_spec("matplotlib") and any(run for runs in curves.values() for run in runs):
        _draw(plan, curves, folder / "curves.png")
    return found


def summarize(
    plan: TransferPlan, records: Sequence[Record], curves: Mapping[str, Sequence[Curve]]
) -> dict[str, Any]:
    """The report as data.

    "groups": for each group, trial count and player the geometric mean of the verified speedups over
    the unscheduled program (at least 1: one keeps that), with its 95 % interval by the stratified
    bootstrap over seeds, over the workloads and seeds that all players have played.
    """
    runs = {record.key: record for record in records}
    groups: dict[str, Any] = {}
    for group in GROUPS:
        uris = [uri for uri, of in plan.groups.items() if of == group]
        seeds, shared = _complete(plan, uris, runs)
        if not shared:
            continue
        tables = {
            str(trials): {
                name: estimate(_scores(runs, name, shared, seeds, trials), geomean)
                for name in plan.players
            }
            for trials in plan.trials
        }
        groups[group] = {"workloads": shared, "seeds": len(seeds), "trials": tables}
    return {
        "plan": {"steps": plan.steps, "reward": plan.reward, "env": plan.env},
        "machine": machine().cpu,
        "versions": versions(),
        "groups": groups,
        "workloads": _by_workload(plan, runs),
        "curves": {name: [list(map(list, curve)) for curve in curves[name]] for name in curves},
    }


def _complete(
    plan: TransferPlan, uris: Sequence[str], runs: Mapping[tuple[str, str, int], Record]
) -> tuple[list[int], list[str]]:
    """Seeds that were begun, and the workloads that every player has played with each of them."""

    def done(uri: str, seed: int) -> bool:
        return all((name, uri, seed) in runs for name in plan.players)

    seeds = [seed for seed in range(plan.seeds) if any(done(uri, seed) for uri in uris)]
    return seeds, [uri for uri in uris if seeds and all(done(uri, seed) for seed in seeds)]


def _speedup(record: Record | None, trials: int) -> float:
    answer = None if record is None else record.answer(trials)
    claim = None if answer is None else answer.claim
    return float("nan") if claim is None or claim.speedup is None else claim.speedup


def _scores(
    runs: Mapping[tuple[str, str, int], Record],
    name: str,
    uris: Sequence[str],
    seeds: Sequence[int],
    trials: int,
) -> Scores:
    """(seeds, workloads)."""
    return ranked([[_speedup(runs[name, uri, seed], trials) for uri in uris] for seed in seeds])


def _by_workload(
    plan: TransferPlan, runs: Mapping[tuple[str, str, int], Record]
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Workload → player → trial count → verified speedup of each seed."""
    return {
        uri: {
            name: {
                str(trials): [
                    _speedup(runs.get((name, uri, seed)), trials) for seed in range(plan.seeds)
                ]
                for trials in plan.trials
            }
            for name in plan.players
        }
        for uri in plan.groups
    }


def _curves(plan: TransferPlan, folder: Path) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {}
    for policy in plan.policies:
        rows = [
            RunFolder(plan.training(folder, policy, seed).out).rows() for seed in range(plan.seeds)
        ]
        found[policy] = [[(row["steps"], row["geomean_speedup"]) for row in run] for run in rows]
    return found


def _markdown(plan: TransferPlan, found: Mapping[str, Any]) -> str:
    said = (
        f"Policies: {plan.steps:,} steps of {plan.env}, {plan.reward} reward, train families of "
        f"core-v0. Machine: {found['machine']}, one thread. Verified speedup over the unscheduled "
        "program, geometric mean (95 % stratified bootstrap over seeds)."
    )
    lines = ["# Transfer to kernels that no policy was trained on", "", said]
    for group, table in found["groups"].items():
        number, seeds = len(table["workloads"]), table["seeds"]
        counts = list(table["trials"])
        lines += [
            "",
            f"## Held-out {group}: {number} workloads, {seeds} seeds",
            "",
            "| player | " + " | ".join(_heading(count) for count in counts) + " |",
            "|---|" + "---:|" * len(counts),
        ]
        lines += [
            f"| {name} | " + " | ".join(_cell(table["trials"][c][name]) for c in counts) + " |"
            for name in plan.players
        ]
    return "\n".join(lines) + "\n"


def _heading(trials: str) -> str:
    return "first answer" if trials == "1" else f"{trials} trials"


def _cell(estimate: Mapping[str, float | None]) -> str:
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    return f"{value:.2f}" if low is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def _draw(plan: TransferPlan, curves: Mapping[str, Sequence[Curve]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (policy, runs) in enumerate(curves.items()):
        done = [run for run in runs if run]
        for run in done:
            axes.plot(*zip(*run, strict=True), color=f"C{number}", linewidth=0.8, alpha=0.5)
        shortest = min(map(len, done), default=0)
        if shortest:
            steps = [step for step, _ in done[0][:shortest]]
            mean = np.exp(np.mean([[np.log(y) for _, y in r[:shortest]] for r in done], axis=0))
            axes.plot(steps, mean, color=f"C{number}", linewidth=2, label=policy)
    axes.set_yscale("log")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(f"speedup on val kernels, greedy\n(by the {plan.reward} reward)")
    axes.legend()
    figure.savefig(path, dpi=120)
