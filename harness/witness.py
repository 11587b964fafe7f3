"""Second witnesses: other ways to build the same IR, to tell a miscompile from a wrong schedule."""

from __future__ import annotations

import platform
from dataclasses import replace

from tirgym.errors import InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.program import Program
from tirgym.harness.target import Target

__all__ = ["GENERIC_ARCH", "witnesses_of"]

GENERIC_ARCH = "x86-64" if platform.machine().lower() in ("x86_64", "amd64") else "generic"
"""The plainest CPU of this machine's kind: no vectors wider than 128 bits."""


def witnesses_of(program: Program) -> tuple[tuple[str, str, Target], ...]:
    """Name, module text and target of each witness for `program`."""
    import tvm

    from tirgym.harness.tensorir.serial import serial_module

    if program.target.backend != "llvm":
        accepted = "a program of backend llvm; for thread-bound ones see tirgym.harness.semantic"
        raise InvalidValueError("program to witness", str(program.target), accepted)
    text = backend(program.target.backend).module_json(program)
    target = program.target
    found = [(f"generic ({GENERIC_ARCH})", text, replace(target, arch=GENERIC_ARCH))]
    if program.dialect == "tensorir":
        serial = serial_module(program.mod)  # type: ignore[attr-defined]
        found.insert(0, ("serial loops", tvm.ir.save_json(serial), target))
    return tuple(found)
