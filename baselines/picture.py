"""`save_picture`: a search run in one image: what each trial gave, and how good the model was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tirgym.errors import InvalidValueError, MissingExtraError
from tirgym.harness.search_run import Trial
from tirgym.harness.status import Status

if TYPE_CHECKING:
    from tirgym.baselines.optimize import OptimizeResult

__all__ = ["save_picture"]

FORMATS = (".png", ".svg")
_BEST, _FIRST, _LAST = "#1a4f8b", "#9ecae1", "#08519c"
_FAILED = {
    Status.TOO_SLOW: ("#b0b0b0", "v"),
    Status.NOISY: ("#b0b0b0", "d"),
    Status.SUSPECT: ("#8e44ad", "d"),
    Status.WRONG_RESULT: ("#c0392b", "x"),
    Status.FLAKY: ("#c0392b", "+"),
}
_OTHER_FAILURE = ("#e67e22", "x")


def save_picture(result: OptimizeResult, path: str | os.PathLike[str]) -> None:
    """Write the search behind `result` to `path`, a .png or .svg file.

    Left: every trial by speedup and verdict, with the best so far. Right: predicted against
    measured time. Raises InvalidValueError for another ending, MissingExtraError without matplotlib.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InvalidValueError(
            "picture", str(path), f"a file name ending in {' or '.join(FORMATS)}"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("a picture", "matplotlib", "plot") from None
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_trials(left, result)
    _draw_model(right, result.curve)
    figure.suptitle(_title(result), fontsize=11)
    figure.savefig(path, dpi=130)


def _title(result: OptimizeResult) -> str:
    name = result.workload.partition("//")[2].replace("?", "  ").replace("&", ", ")
    if result.speedup is None:
        return f"{name}\n{result.agent} on {result.target}: {result.status}"
    low, high = result.speedup_ci or (result.speedup, result.speedup)
    verified = f"verified {result.speedup:.2f}x ({low:.2f} to {high:.2f})"
    return f"{name}\n{result.agent} on {result.target}: {verified}"


def _draw_trials(axes: Any, result: OptimizeResult) -> None:
    trials = [trial for trial in result.curve if trial.charged]
    passed = [trial for trial in trials if trial.candidate.evaluation.passed]
    speedups = [trial.candidate.evaluation.speedup or 1.0 for trial in passed]
    depths = [len(trial.candidate.program.steps) for trial in passed]
    dots = axes.scatter(
        [trial.number for trial in passed], speedups, c=depths, cmap="viridis", s=26, zorder=3
    )
    if passed:
        bar = axes.figure.colorbar(dots, ax=axes, pad=0.01)
        bar.set_label("transforms applied")
    axes.step(
        [0, *(trial.number for trial in trials)],
        [1.0, *(trial.best_speedup for trial in trials)],
        where="post",
        color=_BEST,
        label="best so far",
    )
    axes.axhline(1.0, color="#888888", linewidth=0.8, linestyle=":")
    bottom = min([1.0, *speedups]) * 0.8
    _draw_failures(axes, trials, bottom)
    if result.speedup is not None:
        end = trials[-1].number if trials else 0
        axes.scatter(
            [end], [result.speedup], marker="*", s=150, color="#d4a017", zorder=4, label="verified"
        )
    axes.set(xlabel="trial", ylabel="speedup over the unscheduled program", yscale="log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylim(bottom * 0.85, None)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="best", fontsize=8)


def _draw_failures(axes: Any, trials: Sequence[Trial], bottom: float) -> None:
    """Trials without a number, along the bottom."""
    by_status: dict[Status, list[int]] = {}
    for trial in trials:
        if not trial.candidate.evaluation.passed:
            by_status.setdefault(trial.candidate.evaluation.status, []).append(trial.number)
    for status, numbers in sorted(by_status.items()):
        colour, marker = _FAILED.get(status, _OTHER_FAILURE)
        label = f"{status.value.replace('_', ' ')} ({len(numbers)})"
        heights = [bottom] * len(numbers)
        axes.scatter(numbers, heights, color=colour, marker=marker, s=26, label=label, zorder=3)


def _draw_model(axes: Any, trials: Sequence[Trial]) -> None:
    points = [
        (trial.predicted_us, trial.candidate.evaluation.measurement.latency_us, trial.number)
        for trial in trials
        if trial.candidate.evaluation.measurement is not None
    ]
    axes.set(xlabel="predicted by the static cost (µs)", ylabel="measured (µs)")
    if not points:
        axes.text(0.5, 0.5, "nothing was measured", ha="center", transform=axes.transAxes)
        return
    predicted, measured, numbers = (np.array(column) for column in zip(*points, strict=True))
    axes.scatter(predicted, measured, c=numbers, cmap="Blues", edgecolors=_LAST, s=26, zorder=3)
    low, high = min(predicted.min(), measured.min()), max(predicted.max(), measured.max())
    axes.plot([low, high], [low, high], color="#888888", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log")
    if len(points) > 2:
        axes.set_title(
            f"rank correlation {_spearman(predicted, measured):.2f}; darker: later", fontsize=10
        )


def _spearman(left: Any, right: Any) -> float:
    """Spearman's rank correlation, ties by mean rank; 0 if a side is constant."""
    ranks = [_mean_ranks(side) for side in (left, right)]
    if any(side.std() == 0 for side in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _mean_ranks(values: Any) -> Any:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]
