"""`write_report`: tables by seed, comparisons by workload, and learning curves, of a transfer study."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tirgym.baselines.ppo.run_folder import RunFolder
from tirgym.benchmarks.leaderboard.folder import BoardFolder, plain
from tirgym.benchmarks.leaderboard.record import Recipe, Record
from tirgym.benchmarks.leaderboard.statistics import Scores, geomean, ranked
from tirgym.benchmarks.transfer.comparison import by_seed, paired_ratio, seed_interval
from tirgym.benchmarks.transfer.plan import GROUPS, TransferPlan
from tirgym.harness.whole_file import write_whole

__all__ = ["summarize", "write_report"]

REFERENCE = "ppo-gnn"
"""Whose answers are compared with those of all others."""

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
    """The report as data, of the records alone.

    "groups": over the workloads and seeds that all players have played, for each group

    - "trials": for each trial count and player the geometric mean of the verified speedups over the
      unscheduled program (at least 1: one keeps that), that of each seed, and the 95 % interval by
      whole seeds; no interval where all seeds gave the same answers, which differ by timing alone
    - "comparisons": `REFERENCE` over each other player, see `paired_ratio`
    """
    runs = {record.key: record for record in records}
    groups: dict[str, Any] = {}
    for group in GROUPS:
        uris = [uri for uri, of in plan.groups.items() if of == group]
        seeds, shared = _complete(plan, uris, runs)
        if not shared:
            continue
        scores = {
            (name, trials): _scores(runs, name, shared, seeds, trials)
            for name in plan.players
            for trials in plan.trials
        }
        tables = {
            str(trials): {
                name: _estimate(
                    scores[name, trials], _same_answers(runs, name, shared, seeds, trials)
                )
                for name in plan.players
            }
            for trials in plan.trials
        }
        groups[group] = {
            "workloads": shared,
            "seeds": len(seeds),
            "trials": tables,
            "comparisons": _comparisons(plan, scores),
        }
    return {
        "plan": {"steps": plan.steps, "reward": plan.reward, "env": plan.env},
        "machine": ", ".join(sorted({record.machine.cpu for record in records})),
        "versions": _versions(records),
        "groups": groups,
        "workloads": _by_workload(plan, runs),
        "curves": {name: [list(map(list, curve)) for curve in curves[name]] for name in curves},
    }


def _versions(records: Sequence[Record]) -> dict[str, str]:
    """Package → its version, or all where records differ."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in record.versions.items():
            found.setdefault(package, {})[version] = None
    return {package: ", ".join(all_of) for package, all_of in found.items()}


def _estimate(scores: Scores, same: bool) -> dict[str, Any]:
    low, high = (None if same else seed_interval(scores)) or (None, None)
    value = float(geomean(scores))
    return _rounded({"value": value, "low": low, "high": high, "by_seed": by_seed(scores)})


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Nine digits of each number: the last bits of a logarithm are not the same on every CPU."""

    def shorter(value: Any) -> Any:
        if isinstance(value, list):
            return [shorter(item) for item in value]
        return float(f"{value:.9g}") if isinstance(value, float) else value

    return {name: shorter(value) for name, value in figures.items()}


def _same_answers(
    runs: Mapping[tuple[str, str, int], Record],
    name: str,
    uris: Sequence[str],
    seeds: Sequence[int],
    trials: int,
) -> bool:
    """Whether the player answered with the same recipes whatever the seed."""

    def recipe(uri: str, seed: int) -> Recipe | None:
        answer = runs[name, uri, seed].answer(trials)
        return None if answer is None else answer.recipe

    return all(recipe(uri, seed) == recipe(uri, seeds[0]) for uri in uris for seed in seeds)


def _comparisons(
    plan: TransferPlan, scores: Mapping[tuple[str, int], Scores]
) -> list[dict[str, Any]]:
    """`REFERENCE` over each other player at equal trials, and its first answer over random's next."""
    if REFERENCE not in plan.players:
        return []
    others = [name for name in plan.players if name != REFERENCE]
    pairs = [(name, trials, trials) for name in others for trials in plan.trials]
    if "random" in others and len(plan.trials) > 1:
        pairs.append(("random", plan.trials[0], plan.trials[1]))
    return [
        {
            "first": REFERENCE,
            "first_trials": mine,
            "second": name,
            "second_trials": theirs,
            **_rounded(asdict(paired_ratio(scores[REFERENCE, mine], scores[name, theirs]))),
        }
        for name, mine, theirs in pairs
    ]


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


_READING = """
Each cell: geometric mean over workloads and seeds (95 % interval by whole seeds), then the geometric
mean of each seed. A seed of a policy is one training, which plays all workloads, so seeds are drawn
whole. With three seeds the interval is no more than the lowest and the highest of them, and such a
range holds the median of all seeds with probability 75 %. No interval: one seed, or the same answers
with every seed, which then differ by timing alone.

Comparisons: ratio of the geometric means, paired by workload (95 % bootstrap over workloads, the seeds
taken as they are), and on how many workloads the first is ahead. Workloads of one family are alike,
which makes these intervals too narrow; they are many, and none is corrected for that.
"""


def _markdown(plan: TransferPlan, found: Mapping[str, Any]) -> str:
    said = (
        f"Policies: {plan.steps:,} steps of {plan.env}, {plan.reward} reward, train families of "
        f"core-v0. Machine: {found['machine']}, one thread. Verified speedup over the unscheduled "
        "program."
    )
    lines = [
        "# Transfer to kernels that no policy was trained on",
        "",
        said,
        *_READING.splitlines(),
    ]
    for group, table in found["groups"].items():
        number, seeds = len(table["workloads"]), table["seeds"]
        counts = list(table["trials"])
        lines += ["", f"## Held-out {group}: {number} workloads, {seeds} seeds", ""]
        lines += _head("player", [_heading(count) for count in counts])
        lines += [
            f"| {name} | " + " | ".join(_cell(table["trials"][c][name]) for c in counts) + " |"
            for name in plan.players
        ]
        if table["comparisons"]:
            lines += ["", *_head("compared", ["ratio", "ahead on"])]
            lines += [_compared(comparison) for comparison in table["comparisons"]]
    return "\n".join(lines) + "\n"


def _head(first: str, others: Sequence[str]) -> list[str]:
    return ["| " + " | ".join([first, *others]) + " |", "|---|" + "---:|" * len(others)]


def _heading(trials: str) -> str:
    return "first answer" if trials == "1" else f"{trials} trials"


def _cell(estimate: Mapping[str, Any]) -> str:
    seeds = ", ".join(f"{value:.2f}" for value in estimate["by_seed"])
    return f"{_ranged(estimate['value'], estimate)}: {seeds}"


def _compared(comparison: Mapping[str, Any]) -> str:
    mine, theirs = (_heading(str(comparison[f"{who}_trials"])) for who in ("first", "second"))
    at = mine if mine == theirs else f"{mine} against {theirs}"
    return (
        f"| {comparison['first']} / {comparison['second']}, {at} "
        f"| {_ranged(comparison['ratio'], comparison)} "
        f"| {comparison['ahead']} of {comparison['workloads']} |"
    )


def _ranged(value: float, ends: Mapping[str, Any]) -> str:
    low, high = ends["low"], ends["high"]
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
