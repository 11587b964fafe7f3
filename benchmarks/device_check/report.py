"""`report`: a record as Markdown that reads well in a terminal too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tirgym.benchmarks.device_check.record import Record

__all__ = ["report"]

Row = Mapping[str, Any]
Cell = Callable[[Row], str]


def report(record: Record) -> str:
    """Device, one table for each part, aims."""
    head, summary = record.head, record.summary
    device = head["device"]
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    spent = f"{summary['wall_s']:g} s of {summary['budget_s']:g} s"
    parts = [
        f"# Device check: {device['product']} ({device['arch']})",
        f"{device['driver']}; {versions}. Static cost with the figures of {head['static_cost_of']}.",
        f"{spent}; processes lost: {summary['processes_lost']}.",
    ]
    for part, columns in _TABLES.items():
        rows = [row for (found, _), row in record.rows.items() if found == part]
        if rows:
            parts += [f"## {_TITLES[part]}", _table(columns, rows)]
    wanted = summary["aims"]
    parts += ["## Aims", _table(_AIMS, wanted)]
    if summary["not_reached"]:
        parts.append(f"Not reached: {', '.join(summary['not_reached'])}.")
    return "\n\n".join(parts) + "\n"


def _table(columns: Mapping[str, Cell], rows: Sequence[Row]) -> str:
    cells = [list(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = [
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _number(*path: str, form: str = "{:.2f}") -> Cell:
    """The value that lies at `path` in the row, "-" where there is none."""

    def cell(row: Row) -> str:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return "-" if value is None else form.format(value)

    return cell


def _interval(*path: str) -> Cell:
    def cell(row: Row) -> str:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return "-" if value is None else f"{value[0]:.2f}-{value[1]:.2f}"

    return cell


def _note(row: Row) -> str:
    """The first line of what is to be said, without the table's own sign."""
    vendor = row.get("vendor") or {}
    texts = (row.get("message"), row.get("vendor_why"), vendor.get("deviation"))
    text = next((text for text in texts if text), "")
    return text.splitlines()[0][:100].replace("|", "/") if text else ""


def _config(row: Row) -> str:
    best = row.get("best")
    return " ".join(f"{k}={v}" for k, v in best["config"].items()) if best else "-"


_NAME: dict[str, Cell] = {
    "kernel": lambda row: str(row["name"]),
    "status": lambda row: str(row["status"]),
}
_SEARCH: dict[str, Cell] = {
    **_NAME,
    "trials": lambda row: str(len(row.get("trials", []))),
    "best µs": _number("best", "latency_us", form="{:.1f}"),
    "x default": _number("best", "speedup"),
    "GB/s": _number("gbs", form="{:.0f}"),
    "x autotuner": _number("autotuner", "ratio"),
    "95 %": _interval("autotuner", "interval"),
    "x torch": _number("vendor", "ratio"),
    "best configuration": _config,
    "note": _note,
}
_TABLES: dict[str, dict[str, Cell]] = {
    "device": {**_NAME, "GB/s": _number("gbs", form="{:.0f}"), "note": _note},
    "correctness": {
        **_NAME,
        "error, odd size": _number("odd", "worst_error", form="{:.3f}"),
        "error, timed size": _number("timed", "worst_error", form="{:.3f}"),
        "note": _note,
    },
    "vendor": {
        **_NAME,
        "default µs": _number("default_us", form="{:.1f}"),
        "torch µs": _number("vendor", "us", form="{:.1f}"),
        "x torch": _number("vendor", "ratio"),
        "95 %": _interval("vendor", "interval"),
        "GB/s": _number("gbs", form="{:.0f}"),
        "copy GB/s": _number("copy_gbs", form="{:.0f}"),
        "note": _note,
    },
    "prepared": {
        **_NAME,
        "passed": lambda row: f"{row.get('passed', 0)}/{row.get('programs', 0)}",
        "best program": lambda row: (row.get("best") or {}).get("program") or "-",
        "best µs": _number("best", "latency_us", form="{:.1f}"),
        "x unscheduled": _number("best", "speedup"),
        "x default": _number("default", "ratio"),
        "95 %": _interval("default", "interval"),
        "x torch": _number("vendor", "ratio"),
        "GB/s": _number("gbs", form="{:.0f}"),
        "GFLOP/s": _number("gflops", form="{:.0f}"),
        "x NVRTC": _number("nvrtc", "ratio"),
        "Spearman": _number("spearman"),
        "note": _note,
    },
    "search": _SEARCH,
    "ranking": {
        **_NAME,
        "measured": _number("measured", form="{}"),
        "Spearman": _number("spearman"),
        "slowest / fastest": _number("spread", form="{:.1f}"),
        "note": _note,
    },
    "autotuner": _SEARCH,
}
_TITLES = {
    "device": "Copy bandwidth",
    "correctness": "Correctness of the default configuration (error in units of the tolerance)",
    "vendor": "Default configuration beside torch (x torch: torch's time / ours)",
    "prepared": "TVM's programs, made elsewhere (x: other's time / that of the best)",
    "search": "Measured search beside Triton's autotuner, equal trials (x: other's time / ours)",
    "ranking": "Static cost and measured time",
    "autotuner": "The other kernels beside Triton's autotuner, equal trials",
}
_AIMS: dict[str, Cell] = {
    "aim": lambda row: str(row["aim"]),
    "found": _number("found", form="{:.3f}"),
    "verdict": lambda row: str(row["verdict"]),
    "note": lambda row: str(row["note"]).replace("|", "/"),
}
