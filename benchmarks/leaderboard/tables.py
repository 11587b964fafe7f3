"""`write_report`: board.json, and the same in Markdown and CSV for people and spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tirgym.harness.whole_file import write_whole

__all__ = ["markdown", "ranking_csv", "workloads_csv", "write_report"]

Values = Mapping[str, Any]

MARKED = 40
"""Marked answers that the page shows."""

_RANKING = (
    "trials", "table", "rank", "agent", "kind", "geomean", "geomean_low", "geomean_high", "median",
    "iqm", "geomean_unclipped", "fast_0", "fast_1", "fast_1.5", "fast_2", "fast_5", "fast_10",
    "roofline", "verified", "failed", "missing", "unmeasured", "not_applicable", "trials_used",
    "failures", "compiles", "steps", "tokens", "wall_s",
)  # fmt: skip
_CELLS = (
    "agent", "workload", "seed", "trials", "standing", "reason", "speedup", "low", "high", "score",
    "best_us", "naive_us", "roofline", "claimed", "claim_holds", "recipe", "code_key",
)  # fmt: skip


def write_report(board: Values, folder: Path) -> list[Path]:
    """Write the board into `folder`; answers the files."""
    files = {
        "board.json": json.dumps(board, allow_nan=False, indent=1) + "\n",
        "ranking.md": markdown(board),
        "ranking.csv": ranking_csv(board),
        "cells.csv": workloads_csv(board),
    }
    for name, text in files.items():
        write_whole(folder / name, text)
    return [folder / name for name in files]


def ranking_csv(board: Values) -> str:
    """One line for each agent and trial count."""
    lines: list[Sequence[Any]] = [_RANKING]
    for trials, rows in board["rankings"].items():
        for row in rows:
            mean = row["geomean"]
            values = {
                **row,
                **{f"fast_{p}": share for p, share in row["fast_p"].items()},
                "trials": trials,
                "table": "headline" if row["headline"] else "other",
                "geomean": mean["value"],
                "geomean_low": mean["low"],
                "geomean_high": mean["high"],
                "median": row["median"]["value"],
                "iqm": row["iqm"]["value"],
                "geomean_unclipped": row["geomean_unclipped"]["value"],
            }
            lines.append([values[name] for name in _RANKING])
    return _csv(lines)


def workloads_csv(board: Values) -> str:
    """One line for each agent, workload, seed and trial count."""
    return _csv([_CELLS, *([cell[name] for name in _CELLS] for cell in board["cells"])])


def _csv(lines: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


# -- Markdown -------------------------------------------------------------------------------


def markdown(board: Values) -> str:
    """The whole board as one page."""
    return "\n".join(_lines(board)) + "\n"


def _lines(board: Values) -> Iterator[str]:
    machine, target, counts = board["machine"], board["target"], board["counts"]
    yield f"# Leaderboard of {board['suite']}"
    yield ""
    threads = "thread" if target.get("num_threads") == 1 else "threads"
    place = f"{machine.get('cpu')}, {target.get('arch')}, {target.get('num_threads')} {threads}"
    yield f"{place}. Workloads: {len(board['workloads'])}, seeds: {len(board['seeds'])}."
    told = ", ".join(
        f"{counts[name]} {name.replace('_', ' ')}"
        for name in ("verified", "failed", "missing", "unmeasured", "not_applicable")
        if counts[name]
    )
    yield f"{counts['expected']} answers: {told}."
    if board["foreign"]:
        yield (
            f"{board['foreign']} verdicts were made elsewhere; `tirgym bench verify` measures anew."
        )
    for problem in board["problems"]:
        yield f"- Problem: {problem}"
    for trials in reversed(board["rankings"]):
        yield from _ranking(board, trials)
    yield from _by_workload(board)
    yield from _control(board)
    yield from _trials_to(board)
    yield from _shipped(board)
    yield from _marked(board)
    yield "## Protocol"
    yield ""
    yield f"- Versions: {', '.join(f'{k} {v}' for k, v in sorted(board['versions'].items()))}."
    for sentence in board["protocol"]:
        yield f"- {sentence}"


def _ranking(board: Values, trials: str) -> Iterator[str]:
    others = sorted({name for row in board["rankings"][trials] for name in row["against"]})
    first = ("", "agent", "geomean (95 %)", "median", "IQM", "unclipped", "fast_1", "fast_2")
    head = (*first, *(f"x {name}" for name in others), "of roofline", "failed", "s a run")
    saw = {agent["name"]: agent["why"] for agent in board["agents"]}
    for headline in (True, False):
        rows = [row for row in board["rankings"][trials] if row["headline"] is headline]
        if not rows:
            continue
        name = "Ranking" if headline else "Agents that saw measurements of these families"
        yield from ("", f"## {name} at {trials} trials", "")
        yield from _table(head, [_row(board, row, others, saw) for row in rows])


def _row(board: Values, row: Values, others: Sequence[str], saw: Mapping[str, str]) -> list[str]:
    against = [row["against"].get(name) for name in others]
    lost = row["failed"] + row["missing"] + row["unmeasured"]
    why = saw.get(row["agent"])
    return [
        str(row["rank"]),
        f"{row['agent']} ({why})" if why else row["agent"],
        _interval(row["geomean"]),
        _number(row["median"]["value"]),
        _number(row["iqm"]["value"]),
        _number(row["geomean_unclipped"]["value"]),
        _number(row["fast_p"]["1"]),
        _number(row["fast_p"]["2"]),
        *("" if found is None else _ratio(found, len(board["workloads"])) for found in against),
        "" if row["roofline"] is None else f"{row['roofline']:.0%}",
        str(lost or ""),
        _number(row["wall_s"], 1),
    ]


def _ratio(found: Values, workloads: int) -> str:
    """`1.21 (1.15 to 1.27)`, with the number of workloads where it is not that of all."""
    text = _interval({**found, "value": found["geomean"]})
    return text if found["workloads"] == workloads else f"{text} on {found['workloads']}"


def _by_workload(board: Values) -> Iterator[str]:
    trials = str(board["trials"][-1]) if board["trials"] else ""
    labels = {workload["uri"]: workload["label"] for workload in board["workloads"]}
    names = [a["name"] for a in board["agents"] if a["kind"] != "control"]
    yield from ("", f"## Speedup over the unscheduled program at {trials} trials", "")
    rows = []
    for entry in board["workload_table"]:
        cells = entry["cells"][trials]
        rows.append([labels[entry["workload"]], *(_cell(cells[name]) for name in names)])
    yield from _table(("workload", *names), rows)
    yield ""
    yield "Geometric mean over verified seeds; (2/3): two of three runs are verified."


def _cell(cell: Values) -> str:
    if cell["speedup"] is None:
        return ""
    whole = cell["verified"] == cell["runs"]
    return _number(cell["speedup"]) + ("" if whole else f" ({cell['verified']}/{cell['runs']})")


def _control(board: Values) -> Iterator[str]:
    control = board["control"]
    if control is None:
        return
    yield from ("", "## A/A control", "")
    yield (
        f"The unscheduled program against itself: {control['geomean']:.4f} "
        f"({control['low']:.4f} to {control['high']:.4f} over workloads); the worst is off by "
        f"{control['worst']:.2%}."
    )


def _shipped(board: Values) -> Iterator[str]:
    if not board["shipped"]:
        return
    labels = {workload["uri"]: workload["label"] for workload in board["workloads"]}
    names = sorted({name for row in board["shipped"] for name in row["searches"]})
    yield from ("## Wall seconds of MetaSchedule as it ships, and of our runs", "")
    rows = [
        [
            labels.get(row["workload"], row["workload"]),
            str(row["trials"]),
            _number(row["wall_s"], 0),
            *(_times(row["searches"].get(name), row["ratios"].get(name)) for name in names),
        ]
        for row in board["shipped"]
    ]
    yield from _table(("workload", "trials", "as shipped", *names), rows)
    yield ""


def _times(wall_s: float | None, ratio: float | None) -> str:
    return "" if wall_s is None or ratio is None else f"{wall_s:.0f} ({ratio:.1f}x)"


def _trials_to(board: Values) -> Iterator[str]:
    found = board["trials_to"]
    rows = [
        [name, *("never" if by[str(x)]["median"] is None else f"{by[str(x)]['median']:g}" for x in found["levels"])]
        for name, by in found["agents"].items()
        if all(by.values())
    ]  # fmt: skip
    if rows:
        yield from ("", "## Trials to a share of the best verified speedup", "")
        head = ("agent", *(f"{x:.0%}" for x in found["levels"]))
        yield from _table(head, rows)
        yield from ("", "Median over runs, as seen while searching.")
    yield ""


def _marked(board: Values) -> Iterator[str]:
    marked = [
        cell
        for cell in board["cells"]
        if cell["reason"] and cell["standing"] not in ("not_applicable", "unmeasured")
    ]
    if not marked:
        return
    labels = {workload["uri"]: workload["label"] for workload in board["workloads"]}
    yield from ("## Marked answers", "")
    head = ("agent", "workload", "seed", "trials", "standing", "why")
    rows = [
        [
            cell["agent"],
            labels[cell["workload"]],
            str(cell["seed"]),
            str(cell["trials"]),
            cell["standing"],
            cell["reason"],
        ]
        for cell in marked[:MARKED]
    ]
    yield from _table(head, rows)
    if len(marked) > MARKED:
        yield from ("", f"And {len(marked) - MARKED} more: cells.csv has all.")
    yield ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _interval(found: Values) -> str:
    if found["low"] is None:
        return _number(found["value"])
    return f"{found['value']:.2f} ({found['low']:.2f} to {found['high']:.2f})"
