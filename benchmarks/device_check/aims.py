"""`aims`: what the project wants of its kernels on a GPU, each with met, missed or not measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tirgym.harness.status import Status

__all__ = ["Aim", "aims"]

Rows = Mapping[tuple[str, str], Mapping[str, Any]]

CUBLAS_SHARE = 0.8
COPY_SHARE = 0.9
CORRECT_KERNELS = 10
_RIGHT = (Status.PASSED, Status.NOISY, Status.SUSPECT)
"""statuses of what the gate found right, whatever its clock said"""


@dataclass(frozen=True, slots=True)
class Aim:
    """One aim and what was found."""

    aim: str
    found: float | None
    """None where nothing was measured"""
    verdict: str
    """"met", "missed" or "not measured" """
    note: str = ""


def aims(rows: Rows) -> list[Aim]:
    """All aims, from the rows there are."""
    correct = sum(
        row["status"] == Status.PASSED for (part, _), row in rows.items() if part == "correctness"
    )
    reached = any(part == "correctness" for part, _ in rows)
    found = [
        _judged(
            f"at least {CORRECT_KERNELS} kernels correct on the device",
            float(correct) if reached else None,
            float(CORRECT_KERNELS),
        ),
        _judged(
            f"matmul (float16) at least {CUBLAS_SHARE} of cuBLAS's speed",
            _ratio(rows, "matmul"),
            CUBLAS_SHARE,
            "cuBLAS's time / ours, interleaved",
        ),
        *(_copy_aim(rows, kernel) for kernel in ("softmax", "layernorm")),
        *(_search_aim(row, name) for (part, name), row in rows.items() if part == "search"),
    ]
    return [*found, _prepared(rows), _ranking(rows)]


def _judged(aim: str, value: float | None, least: float, note: str = "") -> Aim:
    if value is None:
        return Aim(aim, None, "not measured", note)
    return Aim(aim, value, "met" if value >= least else "missed", note)


def _tuned(rows: Rows, kernel: str) -> Mapping[str, Any]:
    """The row of the kernel's best configuration; empty without one."""
    found = rows.get(("search", kernel)) or rows.get(("autotuner", kernel)) or {}
    return found if found.get("status") == Status.PASSED else {}


def _ratio(rows: Rows, kernel: str) -> float | None:
    vendor = _tuned(rows, kernel).get("vendor")
    ratio: float | None = vendor["ratio"] if vendor else None
    return ratio


def _copy_aim(rows: Rows, kernel: str) -> Aim:
    copied = rows.get(("vendor", kernel), {}).get("copy_gbs")
    ours = _tuned(rows, kernel).get("gbs")
    value = ours / copied if ours and copied else None
    aim = f"{kernel} at least {COPY_SHARE} of the bandwidth of a copy"
    return _judged(
        aim, value, COPY_SHARE, "compulsory bytes; a copy of as many, timed the same way"
    )


def _search_aim(row: Mapping[str, Any], kernel: str) -> Aim:
    """Not shown to be slower: the interval's upper end is at least 1."""
    found = row.get("autotuner") or {}
    aim = f"best of the search on {kernel} at least as fast as Triton's autotuner's choice"
    if found.get("ratio") is None:
        return Aim(aim, None, "not measured", found.get("message", ""))
    note = f"equal trials; {found['how']}; 95 % interval {_span(found['interval'])}"
    return Aim(aim, found["ratio"], "met" if found["interval"][1] >= 1.0 else "missed", note)


def _span(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"


def _prepared(rows: Rows) -> Aim:
    found = [row for (part, _), row in rows.items() if part == "prepared" and row.get("trials")]
    aim = "every prepared program of TVM right on the device"
    judged = sum(len(row["trials"]) for row in found)
    if not judged:
        return Aim(aim, None, "not measured")
    right = sum(trial["status"] in _RIGHT for row in found for trial in row["trials"])
    return _judged(aim, right / judged, 1.0, f"share of {judged} programs")


def _ranking(rows: Rows) -> Aim:
    found = [
        row["spearman"]
        for (part, _), row in rows.items()
        if part == "ranking" and row.get("spearman") is not None
    ]
    aim = "static cost ranks candidates as the clock does (mean Spearman above 0.8)"
    mean = statistics.fmean(found) if found else None
    note = f"{len(found)} kernels"
    if mean is None:
        return Aim(aim, None, "not measured", note)
    return Aim(aim, mean, "met" if mean > 0.8 else "missed", note)
