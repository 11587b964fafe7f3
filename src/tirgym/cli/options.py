"""Options and arguments that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirgym.errors import InvalidValueError

__all__ = [
    "ArchOption",
    "BackendOption",
    "JsonFlag",
    "KernelArgument",
    "SeedOption",
    "ShapeOption",
    "SubjectArgument",
    "ThreadsOption",
    "TraceArgument",
    "require_seed",
]

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout; progress goes to stderr.")
]
KernelArgument = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL",
        help="A suite kernel (matmul), a workload URI (tirgym://…), or your own (file.py:name).",
        show_default=False,
    ),
]
SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL|TRACE",
        help="A suite kernel (matmul), a workload URI (tirgym://…), your own (file.py:name), "
        "or a saved trace (trace.json).",
        show_default=False,
    ),
]
TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="A saved trace (trace.json).", show_default=False)
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        "-s",
        metavar="DIM=SIZE,…",
        help="Sizes, such as m=64,n=32; repeatable; the rest keeps its default. "
        "'tiny' is the kernel's test shape.",
        show_default=False,
    ),
]
BackendOption = Annotated[
    str | None, typer.Option("--backend", help="Compiler backend.", show_default="llvm")
]
ArchOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        help="Architecture: an LLVM mcpu name; sm_90, gfx942, … with cuda, rocm and triton; a device with opencl.",
        show_default="this machine's",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", help="Threads of the target.", show_default="1"),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of every random draw.")]


def require_seed(seed: int) -> None:
    """Raise InvalidValueError for a seed that NumPy would not take."""
    if seed < 0:
        raise InvalidValueError("--seed", seed, "a whole number of at least 0")
