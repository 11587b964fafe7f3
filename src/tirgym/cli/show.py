"""`tirgym show`: a kernel or trace as text at one IR level."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tirgym.cli.options import (
    ArchOption,
    BackendOption,
    JsonFlag,
    ShapeOption,
    SubjectArgument,
    ThreadsOption,
)
from tirgym.cli.output import print_json, result_console
from tirgym.cli.subject import load_subject
from tirgym.errors import UnknownNameError

__all__ = ["show_command"]

_LEXERS = {"tir": "python", "lowered": "python", "llvm": "llvm", "asm": "gas"}


def show_command(
    subject: SubjectArgument,
    level: Annotated[
        str, typer.Option("--level", help="IR level: tir, lowered, llvm, asm, passes.")
    ] = "tir",
    shape: ShapeOption = None,
    backend: BackendOption = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    json: JsonFlag = False,
) -> None:
    """Print a kernel, or the program of a trace, at one IR level."""
    from tirgym.harness.backend import backend as load_backend

    program = load_subject(subject, shape, backend, arch, threads).program
    compiler = load_backend(program.target.backend)
    if level not in compiler.levels:
        raise UnknownNameError(f"IR level of backend {compiler.name}", level, compiler.levels)
    text = compiler.ir_level(program, level)
    if json:
        print_json(
            {
                "workload": program.workload.uri,
                "backend": program.target.backend,
                "target": program.target.arch,
                "num_threads": program.target.num_threads,
                "transforms": [str(step) for step in program.steps],
                "ir_key": program.ir_key,
                "level": level,
                "text": text,
            }
        )
    elif sys.stdout.isatty() and level in _LEXERS:
        from rich.syntax import Syntax

        result_console().print(Syntax(text, _LEXERS[level], background_color="default"))
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
