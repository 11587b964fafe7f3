"""Programs, timings and verdicts as rows of a table and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirgym.harness.evaluation import Evaluation, TimingStats
    from tirgym.harness.program import Program

__all__ = [
    "TIMING_COLUMNS",
    "evaluation_record",
    "program_record",
    "sessions_text",
    "speedup_text",
    "timing_row",
]

TIMING_COLUMNS = ("", ">lower quartile µs", ">median µs", ">P95 µs", ">P99 µs")


def timing_row(name: str, stats: TimingStats | None, *more: str) -> list[str]:
    """Cells for TIMING_COLUMNS, followed by `more`."""
    if stats is None:
        return [name, "", "", "", "", *more]
    times = (stats.lower_quartile_us, stats.median_us, stats.p95_us, stats.p99_us)
    return [name, *(f"{time:.2f}" for time in times), *more]


def speedup_text(speedup: float | None, interval: tuple[float, float] | None) -> str:
    """`3.21x (3.15 to 3.27)`."""
    if speedup is None:
        return "none"
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    return f"{speedup:.2f}x{between}"


def sessions_text(speedups: Sequence[float], passed: bool) -> str:
    """`sessions 8.43x, 8.51x, 8.60x: the number is the median, its interval spans all of theirs`."""
    meaning = "the number is the median, its interval spans all of theirs"
    each = ", ".join(f"{speedup:.2f}x" for speedup in speedups)
    return f"sessions {each}: {meaning if passed else 'too few for a number'}"


def program_record(program: Program) -> dict[str, Any]:
    """What a program is."""
    return {
        "workload": program.workload.uri,
        "backend": program.target.backend,
        "target": program.target.arch,
        "num_threads": program.target.num_threads,
        "transforms": [str(step) for step in program.steps],
        "ir_key": program.ir_key,
    }


def evaluation_record(evaluation: Evaluation) -> dict[str, Any]:
    """Verdict and numbers of one evaluation; numbers are null without a pass."""
    measured, gate = evaluation.measurement, evaluation.gate
    return {
        "status": evaluation.status.value,
        "message": evaluation.message,
        "level": evaluation.level.value,
        "code_key": evaluation.code_key,
        "speedup": measured.speedup if measured else None,
        "speedup_ci": measured.speedup_ci if measured else None,
        "sessions": list(evaluation.sessions),
        "baseline_us": measured.latency_us * measured.speedup if measured else None,
        "best_us": measured.latency_us if measured else None,
        "best": asdict(measured.candidate) if measured else None,
        "timer": measured.timer if measured else None,
        "cache": measured.cache if measured else None,
        "clock_mhz": measured.clock_mhz if measured else None,
        "reused": measured.reused if measured else False,
        "replayed_from": evaluation.replayed_from,
        "regimes": list(gate.regimes) if gate else [],
        "worst_error": gate.worst_error if gate else None,
        "bit_identical": gate.bit_identical if gate else None,
        "seconds": asdict(evaluation.phases),
    }
