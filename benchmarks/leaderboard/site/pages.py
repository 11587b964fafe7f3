"""`write_site`: the JSON of a board as pages.

A page is `page.html` around a body, with style, scripts and its part of the data inside. The data
stands in a JSON element in which `<`, `>` and `&` are escaped; scripts show text with `textContent`
alone, and a content security policy lets nothing else run or load.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from tirgym.benchmarks.leaderboard.report import FORMAT
from tirgym.errors import InvalidValueError
from tirgym.harness.html_page import embedded, fill, policy_hash
from tirgym.harness.whole_file import write_whole

__all__ = ["page_names", "write_site"]

Values = Mapping[str, Any]

_SCRIPTS = ("words.js", "table.js", "chart.js")
_EVERYWHERE = (
    "suite", "made", "machine", "target", "trials", "seeds", "sessions", "agents", "workloads",
    "pages",
)  # fmt: skip
_RANKING = (
    "versions", "protocol", "counts", "problems", "rankings", "fast_p", "profiles", "improvement",
    "workload_table", "trials_to", "control", "shipped",
)  # fmt: skip
_COMPARED = ("rankings", "fast_p", "profiles", "improvement", "workload_table", "trials_to")


def write_site(board: Values, folder: Path) -> list[Path]:
    """Write the pages of `board` (see `tirgym.benchmarks.leaderboard.report`); answers the files.

    Raises InvalidValueError for a board of another format. Other files in `folder` stay.
    """
    if board.get("format") != FORMAT:
        raise InvalidValueError("format of the board", board.get("format"), repr(FORMAT))
    made = []
    for name, text in _pages(board):
        write_whole(folder / name, text)
        made.append(folder / name)
    return made


def page_names(board: Values) -> dict[str, str]:
    """Workload URI → file of its page, such as "kernels/matmul.html"; unique, letters and digits."""
    names: dict[str, str] = {}
    for workload in board["workloads"]:
        plain = re.sub(r"[^a-z0-9]+", "-", workload["label"].lower()).strip("-") or "kernel"
        name, number = plain, 1
        while f"kernels/{name}.html" in names.values():
            number += 1
            name = f"{plain}-{number}"
        names[workload["uri"]] = f"kernels/{name}.html"
    return names


def _pages(board: Values) -> Iterator[tuple[str, str]]:
    told = {**board, "pages": page_names(board)}
    suite = board["suite"]
    more = {
        "curves": {name: told["curves"][name] for name in ("n", "agents")},
        "unverified": [_short(cell) for cell in board["cells"] if _is_marked(cell)],
    }
    yield (
        "index.html",
        _page(
            f"Leaderboard of {suite}",
            "ranking",
            {**_part(told, *_RANKING), **more},
        ),
    )
    yield (
        "compare.html",
        _page(f"Two agents on {suite}", "compare", {**_part(told, *_COMPARED), **more}),
    )
    for workload in board["workloads"]:
        name = told["pages"][workload["uri"]]
        title = f"{workload['label']} on {suite}"
        yield name, _page(title, "kernel", _kernel(told, workload["uri"]), root="../")


def _part(told: Values, *names: str) -> dict[str, Any]:
    return {name: told[name] for name in (*_EVERYWHERE, *names)}


def _is_marked(cell: Values) -> bool:
    verified = cell["standing"] == "verified"
    return not verified or cell["claim_holds"] is False


def _short(cell: Values) -> dict[str, Any]:
    names = ("agent", "workload", "seed", "trials", "standing", "reason")
    return {name: cell[name] for name in names}


def _kernel(told: Values, uri: str) -> dict[str, Any]:
    """What the page of one workload shows."""
    curves, control = told["curves"], told["control"]
    table = next(entry for entry in told["workload_table"] if entry["workload"] == uri)
    return {
        **_part(told),
        "workload": uri,
        "cells": [cell for cell in told["cells"] if cell["workload"] == uri],
        "table": table["cells"],
        "curves": {"n": curves["n"], "agents": curves["workloads"][uri]},
        "control": control["workloads"].get(uri) if control else None,
        "winner": next((w for w in told["winners"] if w["workload"] == uri), None),
    }


def _page(title: str, body: str, data: Values, root: str = "") -> str:
    style = _asset("site.css")
    script = "\n".join(_asset(name) for name in (*_SCRIPTS, f"{body}.js"))
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {policy_hash(style)}; "
    )
    parts = {
        "title": html.escape(title),
        "policy": f"{policy}script-src {policy_hash(script)}",
        "root": root,
        "body": _asset(f"{body}.html"),
        "style": style,
        "script": script,
        "data": embedded({**data, "root": root}),
    }
    return fill(_asset("page.html"), parts)


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
