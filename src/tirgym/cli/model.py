"""`tirgym model`: train a performance model on recorded programs, look at a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    SeedOption,
    ThreadsOption,
    require_seed,
)
from tirgym.cli.output import (
    counted,
    note,
    print_json,
    print_table,
    progress_bar,
    result_console,
    working,
)
from tirgym.cli.subject import chosen_target, require_writable

if TYPE_CHECKING:
    from tirgym.harness.target import Target
    from tirgym.performance_model.dataset import Dataset
    from tirgym.performance_model.header import Header
    from tirgym.performance_model.model import PerformanceModel
    from tirgym.performance_model.report import WorkloadReport

__all__ = ["load_model", "model_command", "train_command"]

StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="Measurement store, or core-v0, which ships.",
        show_default="the user's store",
    ),
]


def train_command(
    out: Annotated[Path, typer.Option("--out", help="Write the model here.", show_default=False)],
    store: StoreOption = None,
    kind: Annotated[
        str, typer.Option("--kind", help="trees (extra: model) or gnn (extra: rl).")
    ] = "trees",
    every_family: Annotated[
        bool,
        typer.Option(
            "--all-families",
            help="Learn from the val and test families of the suite too, for the best model to use.",
        ),
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Also judge each family by a model that learned from all others."
        ),
    ] = False,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", help="Fingerprint, of a store with several.", show_default="this one"
        ),
    ] = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="The store is one's own: run the Python files that it has kernels of."
        ),
    ] = False,
    seed: SeedOption = 0,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Train a performance model on a measurement store, and report it on held-out kernels."""
    require_seed(seed)
    require_writable(out, "--out")
    from tirgym.performance_model.learner import make_learner
    from tirgym.performance_model.report import (
        held_out,
        leave_one_out,
        means,
        require_each_can_be_left_out,
    )
    from tirgym.performance_model.training import train

    make_learner(kind)  # before the store is read: a missing package is said at once
    target = chosen_target(backend, arch, threads)
    dataset = _dataset(store, target, arch is not None, machine, files)
    if report:
        require_each_can_be_left_out(dataset)
    families = sorted({sample.family for sample in dataset.samples}) if every_family else None
    with progress_bar(f"training {kind}") as advance:
        model = train(
            dataset, kind, seed, families, on_member=lambda done, of: advance(done, of, "members")
        )
    model.save(out)
    rows = held_out(model, dataset)
    left_out: list[WorkloadReport] = []
    if report:
        with progress_bar("leaving families out") as advance:
            left_out = leave_one_out(
                dataset, kind, seed, on_family=lambda done, of: advance(done, of, "families")
            )
    if json:
        print_json(
            {
                **_header_record(model.header),
                "model_file": str(out),
                "skipped": dataset.skipped,
                "held_out": {"rows": _rows(rows), "means": means(rows) if rows else {}},
                "leave_one_out": {
                    "rows": _rows(left_out),
                    "means": means(left_out) if left_out else {},
                },
            }
        )
        return
    header = model.header
    _print_rows("Held-out families of the suite", rows)
    if report:
        _print_rows("Each family by a model that learned from all others", left_out)
    console = result_console()
    for reason, number in dataset.skipped.items():
        console.print(f"not used: {counted(number, 'verdict')} {reason}")
    console.print(
        f"{header.kind} from {counted(header.programs, 'program')} of "
        f"{counted(len(header.kernels), 'kernel')} for {header.target}"
    )
    console.print(f"model    {out} (tirgym optimize KERNEL --model {out} searches with it)")


def model_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A trained model.", show_default=False)
    ],
    json: JsonFlag = False,
) -> None:
    """Say what a model learned from; exit code 2 if it does not hold with what is installed here."""
    from tirgym.harness.hardware import fingerprint
    from tirgym.performance_model.model import PerformanceModel

    header = PerformanceModel.load(model).header
    if json:
        print_json({**_header_record(header), "model_file": str(model)})
        return
    rows: list[tuple[str, object]] = [
        ("kind", header.kind),
        ("target", header.target),
        ("machine", f"{header.machine}{'' if header.machine == fingerprint() else ' (another)'}"),
        ("programs", f"{header.programs} of {counted(len(header.kernels), 'kernel')}"),
        ("families", ", ".join(header.families)),
        ("members", len(header.folds)),
        (
            "interval",
            f"{header.level:.0%}, at least ±{header.doubts * header.floor:.2f} of the log",
        ),
        ("seed", header.seed),
        ("compiler", header.versions),
    ]
    print_table("", ("", ""), rows)


def _dataset(
    store: Path | None, target: Target, exact: bool, machine: str | None, files: bool
) -> Dataset:
    """What the store holds for `target`; unless `exact`, for the one target that is alike."""
    from tirgym.harness.replay_evaluator import stored_target
    from tirgym.harness.shipped_store import to_read
    from tirgym.harness.store import Store
    from tirgym.performance_model.dataset import read_store

    opened = Store(to_read(store), read_only=True)
    try:
        if not exact:
            target = stored_target(opened, target)
        with working("making the stored programs again"):
            return read_store(opened, target, machine, files=files)
    finally:
        opened.close()


def _header_record(header: Header) -> dict[str, Any]:
    record = asdict(header)
    target = record.pop("target")
    return {
        "backend": target["backend"],
        "target": target["arch"],
        "num_threads": target["num_threads"],
        **record,
    }


def _rows(rows: Sequence[WorkloadReport]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def _print_rows(title: str, rows: Sequence[WorkloadReport]) -> None:
    """One line for each workload, then the means."""
    from tirgym.performance_model.report import FEWEST, means

    if not rows:
        result_console().print(f"{title}: none with at least {FEWEST} programs of a kernel")
        return
    columns = (
        "kernel", "split", ">programs", ">Spearman", ">static", ">top-5 recall", ">static",
        ">best of 5", ">static", ">coverage",
    )  # fmt: skip
    lines = [
        (row.kernel, row.split, *_figures(record))
        for row, record in zip(rows, _rows(rows), strict=True)
    ]
    for name, group in means(rows).items():
        lines.append((f"mean of {group['workloads']}", name, *_figures(group)))
    print_table(title, columns, lines)


def _figures(record: dict[str, Any]) -> tuple[str, ...]:
    model, static = record["model"], record["static"]
    cells = [str(model["programs"])]
    for name in ("spearman", "recall", "best"):
        cells += [_shown(model[name]), _shown(static[name])]
    return (*cells, _shown(model["coverage"]))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def load_model(path: Path, target: Target) -> PerformanceModel:
    """The model at `path`, to search with for `target`; warns if another machine was measured."""
    from tirgym.harness.hardware import fingerprint
    from tirgym.performance_model.model import PerformanceModel

    model = PerformanceModel.load(path, target)
    if model.header.machine != fingerprint():
        note(f"warning: {path} was measured on another machine; what it prefers is still measured")
    return model
