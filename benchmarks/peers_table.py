"""`summary`: medians over the seeds of a comparison with peers, and the geometric means over kernels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

__all__ = ["geomean", "summary", "table"]

Row = Mapping[str, Any]

SIX = ("matmul512", "matmul", "conv2d", "softmax", "layernorm", "attention")
"""The workloads of the headline."""


def geomean(values: Sequence[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def _median(values: Sequence[float | None]) -> float | None:
    """Median of what has a number; a missing one is not held for any."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _workload(name: str, rows: Sequence[Row], apart: Sequence[Row]) -> dict[str, Any]:
    libraries = sorted({library for row in rows for library in row["libraries"]})
    return {
        "workload": name,
        "seeds": len(rows),
        "agent": rows[0]["agent"],
        "ours_us": _median([row["ours_us"] for row in rows]),
        "speedup": _median([row["speedup"] for row in rows]),
        "metaschedule": _median([row["ratio"] for row in rows]),
        "metaschedule_early": _median([row["early_ratio"] for row in rows]),
        "libraries": {
            library: _median([row["libraries"].get(library) for row in rows])
            for library in libraries
        },
        "failures": sum(row["our_failures"] for row in rows),
        "metaschedule_failures": sum(row["peer_failures"] for row in rows),
        "wall_s": _median([row["ours_s"] for row in rows]),
        "metaschedule_search_s": _median([row["peer_s"] for row in rows]),
        "metaschedule_shipped_s": _median([row["wall_s"] for row in apart]),
        "beside_shipped_s": _median([row["ours_s"] for row in apart]),
        "shipped_over_ours": _median([row["wall_s"] / row["ours_s"] for row in apart]),
        "shipped_over_search": _median([row["wall_s"] / row["ours_search_s"] for row in apart]),
    }


def summary(duels: Sequence[Row], shipped: Sequence[Row]) -> dict[str, Any]:
    """Rows by workload (medians over seeds; times of the others / ours) and means over `SIX`.

    A workload without a number is left out of a mean, and the mean says over how many it is.
    """
    names = list(dict.fromkeys(row["workload"] for row in duels))
    rows = [
        _workload(
            name,
            [row for row in duels if row["workload"] == name],
            [row for row in shipped if row["workload"] == name],
        )
        for name in names
    ]
    six = [row for row in rows if row["workload"] in SIX]
    means: dict[str, Any] = {}
    for field in (
        "metaschedule",
        "metaschedule_early",
        "shipped_over_ours",
        "shipped_over_search",
    ):
        values = [row[field] for row in six if row[field] is not None]
        means[field] = {"geomean": geomean(values), "workloads": len(values)}
    return {"rows": rows, "means": means}


def _cell(value: Any, form: str = "{:.2f}") -> str:
    return "-" if value is None else form.format(value)


def table(found: Mapping[str, Any]) -> Table:
    """For people. Columns "x …" are time of the other / ours: above 1 we are faster."""
    made = Table(
        "workload", "ours µs", "x naive", "x NumPy", "x torch", "x MetaSchedule", "x at 16",
        "as shipped s", "ours s",
    )  # fmt: skip
    for row in found["rows"]:
        libraries = row["libraries"]
        made.add_row(
            row["workload"],
            _cell(row["ours_us"], "{:.1f}"),
            _cell(row["speedup"]),
            _cell(libraries.get("numpy")),
            _cell(libraries.get("torch")),
            _cell(row["metaschedule"]),
            _cell(row["metaschedule_early"]),
            _cell(row["metaschedule_shipped_s"], "{:.0f}"),
            _cell(row["beside_shipped_s"], "{:.0f}"),
        )
    means = found["means"]
    made.add_section()
    made.add_row(
        "geomean of the six", "", "", "", "",
        _cell(means["metaschedule"]["geomean"]),
        _cell(means["metaschedule_early"]["geomean"]),
        "",
        "",
    )  # fmt: skip
    return made
