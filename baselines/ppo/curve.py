"""`save_curve`: the evaluations of a training as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tirgym.baselines.ppo.train_args import TrainArgs
from tirgym.harness.whole_file import write_whole

__all__ = ["save_curve"]


def save_curve(rows: Sequence[Mapping[str, Any]], args: TrainArgs, path: Path) -> Path:
    """Draw the speedup on held-out kernels and the training return over steps; needs matplotlib.

    `rows` are the lines of `progress.jsonl`. The picture is whole at any time.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    steps = [row["steps"] for row in rows]
    kernels: dict[str, list[float]] = {}
    for row in rows:
        for played in row["played"]:
            kernel = played["workload"].rpartition("/")[2].partition("?")[0]
            kernels.setdefault(kernel, []).append(played["speedup"])
    for kernel, speedups in kernels.items():
        upper.plot(steps, speedups, linewidth=1, alpha=0.6, label=kernel)
    means = [row["geomean_speedup"] for row in rows]
    upper.plot(steps, means, color="black", linewidth=2, label="geometric mean")
    upper.set_yscale("log")
    said = "verified" if args.reward == "measured" else f"by the {args.reward} reward"
    kernels_said = "chosen" if args.eval_kernels else args.eval_split
    upper.set_ylabel(f"speedup, {kernels_said} kernels\n({said}, greedy)")
    upper.legend(fontsize="small", ncols=2)
    told = [row for row in rows if "rollout/episode_return" in row["figures"]]
    lower.plot(
        [row["steps"] for row in told],
        [row["figures"]["rollout/episode_return"] for row in told],
    )
    lower.set_ylabel("episode return,\ntraining kernels")
    lower.set_xlabel("environment steps")
    figure.suptitle(f"{args.agent} on {args.env}, {args.reward} reward, seed {args.seed}")
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format="png")
    write_whole(path, picture.getvalue())
    return path
