"""`tirgym list`: the kernels, and the names that other commands accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tirgym.cli.options import JsonFlag
from tirgym.cli.output import print_json, print_table
from tirgym.errors import InvalidValueError, UnknownNameError

__all__ = ["list_command"]

Row = dict[str, Any]


def list_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="kernels, suites, agents, backends, transforms, macros or environments.",
        ),
    ] = "kernels",
    suite: Annotated[
        str | None, typer.Option(help="Only this suite's kernels.", show_default=False)
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Only kernels of this split: train, val, test.", show_default=False),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """List what there is: kernels, suites, agents, backends, transforms, macros, environments."""
    if what not in _LISTS:
        raise UnknownNameError("list", what, _LISTS)
    if what != "kernels" and (suite or split):
        raise InvalidValueError("--suite or --split", what, "only the list of kernels")
    rows = _kernels(suite, split) if what == "kernels" else _LISTS[what]()
    if json:
        print_json({what: rows})
        return
    columns = list(rows[0]) if rows else []
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    print_table("", columns, cells)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _kernels(suite: str | None = None, split: str | None = None) -> list[Row]:
    from tirgym.kernels_suite.kernel import Split, Workload
    from tirgym.kernels_suite.registry import SUITES, list_kernels, split_of

    if suite is not None and suite not in SUITES:
        raise UnknownNameError("suite", suite, sorted(SUITES))
    if split is not None and split not in list(Split):
        raise UnknownNameError("split", split, list(Split))
    rows: list[Row] = []
    for kernel in list_kernels(suite):
        part = split_of(kernel)
        if split is None or part == split:
            rows.append(
                {
                    "kernel": kernel.name,
                    "family": kernel.family,
                    "split": str(part),
                    "dtype": kernel.dtype,
                    "shape": dict(kernel.default_shape),
                    "uri": Workload.of(kernel).uri,
                }
            )
    return rows


def _suites() -> list[Row]:
    from tirgym.kernels_suite.registry import SUITES, list_kernels

    return [{"suite": name, "kernels": len(list_kernels(name))} for name in sorted(SUITES)]


def _agents() -> list[Row]:
    from tirgym.baselines.registry import AGENTS

    return [{"agent": name, "class": where} for name, where in AGENTS.items()]


def _backends() -> list[Row]:
    """`status` is "available", or what is missing and how to get it."""
    from tirgym.errors import BackendUnavailableError
    from tirgym.harness.backend import BACKENDS, backend

    rows: list[Row] = []
    for name in BACKENDS:
        try:
            levels, status = list(backend(name).levels), "available"
        except BackendUnavailableError as error:
            levels, status = [], f"not available: {error}"
        rows.append({"backend": name, "status": status, "levels": levels})
    return rows


def _transforms() -> list[Row]:
    """`note` says why a transform is in no vocabulary."""
    from tirgym.harness.transforms import OPT_IN, TRANSFORMS, VOCABULARIES

    rows: list[Row] = []
    for name, where in TRANSFORMS.items():
        kinds = [kind for kind in VOCABULARIES if name in VOCABULARIES[kind]]
        note = "" if kinds else f"not by default: {OPT_IN[name]}"
        rows.append({"transform": name, "vocabularies": kinds, "note": note, "class": where})
    return rows


def _macros() -> list[Row]:
    from tirgym.harness.macros import MACRO_VOCABULARIES, MACROS

    return [
        {
            "macro": name,
            "vocabularies": [kind for kind, names in MACRO_VOCABULARIES.items() if name in names],
            "class": where,
        }
        for name, where in MACROS.items()
    ]


def _environments() -> list[Row]:
    import gymnasium

    import tirgym

    del tirgym  # registers the ids
    specs = gymnasium.registry.values()
    ids = sorted(spec.id for spec in specs if spec.namespace == "tirgym")
    return [{"environment": name} for name in ids]


_LISTS: dict[str, Callable[[], list[Row]]] = {
    "kernels": _kernels,
    "suites": _suites,
    "agents": _agents,
    "backends": _backends,
    "transforms": _transforms,
    "macros": _macros,
    "environments": _environments,
}
