"""`tirgym show`: a kernel or trace as text at one IR level."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

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
from tirgym.cli.records import program_record
from tirgym.cli.subject import load_subject
from tirgym.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tirgym.harness.backend import Backend
    from tirgym.harness.backends.llvm_levels import PassRecord
    from tirgym.harness.program import Program

__all__ = ["show_command"]


@runtime_checkable
class HasPasses(Protocol):
    """A backend that can list its lowering passes."""

    def passes(self, program: Program) -> Sequence[PassRecord]:
        """Every pass, in order."""


_LEXERS = {
    "tir": "python",
    "lowered": "python",
    "python": "python",
    "llvm": "llvm",
    "llir": "llvm",
    "asm": "gas",
    "ptx": "ptx",
    "opencl": "c",
    "cuda": "cuda",
    "amdgcn": "gas",
}


def show_command(
    subject: SubjectArgument,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            help="IR level: tir, lowered, llvm, asm, passes; with --backend opencl: tir, lowered, "
            "opencl; cuda: tir, lowered, cuda, ptx, sass; rocm: tir, lowered, llvm, amdgcn; triton: python, "
            "ttir, ttgir, llir, ptx, sass, amdgcn.",
            show_default="the highest",
        ),
    ] = None,
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
    level = level or compiler.levels[0]
    if level not in compiler.levels:
        raise UnknownNameError(f"IR level of backend {compiler.name}", level, compiler.levels)
    text = compiler.ir_level(program, level)
    if json:
        passes = {"passes": _passes(compiler, program)} if level == "passes" else {}
        print_json({**program_record(program), "level": level, "text": text, **passes})
    elif sys.stdout.isatty() and level in _LEXERS:
        from rich.syntax import Syntax

        result_console().print(Syntax(text, _LEXERS[level], background_color="default"))
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def _passes(compiler: Backend, program: Program) -> list[dict[str, Any]]:
    """Every lowering pass with its time and the IR around it."""
    if not isinstance(compiler, HasPasses):
        return []
    return [
        {
            "name": record.name,
            "ms": record.seconds * 1e3,
            "changed": record.changed,
            "before": record.before,
            "after": record.after,
        }
        for record in compiler.passes(program)
    ]
