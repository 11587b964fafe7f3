"""`tirgym store show` and `export`: what a measurement store holds; one that can be shipped."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirgym.cli.options import ArchOption, BackendOption, JsonFlag, ThreadsOption
from tirgym.cli.output import counted, print_json, print_table, result_console, working
from tirgym.cli.subject import chosen_target, require_writable

if TYPE_CHECKING:
    from tirgym.harness.store import Store
    from tirgym.harness.store_contents import Contents

__all__ = ["export_store_command", "store_command"]

StoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE",
        help="A store file, or the name of one that ships: core-v0.",
        show_default="the user's store",
    ),
]


def store_command(store: StoreArgument = None, json: JsonFlag = False) -> None:
    """Say what a store holds: machine, target, versions, and the verdicts on each kernel."""
    from tirgym.harness.shipped_store import to_read
    from tirgym.harness.store import Store
    from tirgym.harness.store_contents import read_contents

    opened = Store(to_read(store), read_only=True)
    try:
        with working("reading the store"):
            contents = read_contents(opened)
        origins = _origins(opened, contents)
    finally:
        opened.close()
    if json:
        print_json(
            {
                "store": opened.path,
                "recorded": origins,
                "workloads": [_record(held) for held in contents],
                **_sums(contents),
            }
        )
        return
    for origin in origins:
        print_table("", ("", ""), list(origin.items()))
    columns = ("workload", "split", ">walks", ">verdicts", ">passed", ">best speedup")
    print_table("", columns, [_row(held) for held in contents])
    sums = _sums(contents)
    parts = [f"{number} {status}" for status, number in sums["verdicts"].items()]
    total = counted(sum(sums["verdicts"].values()), "verdict")
    result_console().print(f"{total}: {', '.join(parts)}; {counted(sums['walks'], 'walk')}")


def export_store_command(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="Write here, such as mine.sqlite.xz, and mine.json."),
    ],
    store: Annotated[
        Path | None,
        typer.Option("--store", help="Measurement store.", show_default="the user's store"),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", help="Fingerprint, of a store with several.", show_default="the only one"
        ),
    ] = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Pack what a store holds of settled verdicts for one target and machine into a small file."""
    from tirgym import settings
    from tirgym.errors import InvalidValueError
    from tirgym.harness.replay_evaluator import stored_target
    from tirgym.harness.shipped_store import SUFFIX, pack
    from tirgym.harness.store import Store
    from tirgym.harness.store_contents import export_store, read_contents

    if not out.name.endswith(SUFFIX):
        raise InvalidValueError("OUT", str(out), f"a name that ends in {SUFFIX}")
    require_writable(out, "OUT")
    source = Store(store or settings.store_path(), read_only=True)
    target = chosen_target(backend, arch, threads)
    with tempfile.TemporaryDirectory() as folder, working("packing"):
        target = target if arch is not None else stored_target(source, target)
        made = export_store(source, Path(folder) / "store.sqlite", target, machine)
        sums = _sums(read_contents(made))
        made.close()
        digest = pack(Path(made.path), out, sums)
    source.close()
    size = out.stat().st_size
    if json:
        print_json({"file": str(out), "bytes": size, "sha256": digest, **sums})
        return
    total = counted(sum(sums["verdicts"].values()), "verdict")
    result_console().print(
        f"{total} and {counted(sums['walks'], 'walk')} for {target} in {out}, {size / 1e6:.2f} MB"
    )


def _origins(store: Store, contents: Sequence[Contents]) -> list[dict[str, Any]]:
    """Machine, target, versions and protocol of all that was recorded, each combination once."""
    from tirgym.harness.hardware import fingerprint
    from tirgym.harness.store_contents import cpu_note

    notes, made = store.notes(), []
    for c in dict.fromkeys(
        (c.machine, c.target, c.versions, c.protocol) for c in (held.context for held in contents)
    ):
        machine, target, versions, protocol = c
        made.append(
            {
                "machine": machine,
                "this machine": "yes" if machine == fingerprint() else "no",
                "cpu": notes.get(cpu_note(machine), "not noted"),
                "target": str(target),
                "compiler": versions,
                "protocol": protocol,
            }
        )
    return made


def _sums(contents: Sequence[Contents]) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    for held in contents:
        verdicts.update({status.value: number for status, number in held.verdicts.items()})
    return {
        "verdicts": dict(sorted(verdicts.items())),
        "walks": sum(held.walks for held in contents),
        "kernels": len({held.context.workload for held in contents}),
    }


def _record(held: Contents) -> dict[str, Any]:
    return {
        "workload": held.context.workload,
        "split": str(held.split or ""),
        "machine": held.context.machine,
        "walks": held.walks,
        "verdicts": {status.value: number for status, number in held.verdicts.items()},
        "best_speedup": held.best_speedup,
    }


def _row(held: Contents) -> tuple[object, ...]:
    verdicts = {status.value: number for status, number in held.verdicts.items()}
    best = "" if held.best_speedup is None else f"{held.best_speedup:.2f}x"
    total = sum(verdicts.values())
    name = held.context.workload.removeprefix("tirgym://")
    return (name, held.split or "", held.walks, total, verdicts.get("passed", 0), best)
