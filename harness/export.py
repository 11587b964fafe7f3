"""`export_library`: a program as a shared library with one plain C function.

The library needs neither TVM nor tirgym, and can be called from C, or from Python with ctypes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirgym import settings
from tirgym.errors import BackendUnavailableError, EvaluationError, InvalidValueError
from tirgym.harness.export_shim import ALIGNMENT, c_header, c_source, threads_note
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.program import Program
from tirgym.kernels_suite.kernel import Tensor
from tirgym.kernels_suite.problem import tensors

__all__ = [
    "FORMAT",
    "ExportedLibrary",
    "c_compiler",
    "export_library",
    "function_name",
    "link_library",
    "require_exportable",
]

FORMAT = "tirgym-library-1"


@dataclass(frozen=True, slots=True)
class ExportedLibrary:
    """The three files of an exported program, and what they hold."""

    library: Path
    header: Path
    """C declaration"""
    metadata: Path
    """function name, shapes, dtypes, target, keys and transforms as JSON"""
    function: str
    info: dict[str, Any]
    """the content of `metadata`"""


def c_compiler() -> list[str] | None:
    """Command of a C compiler: $CC, cc, gcc, clang, or the `ziglang` package; None without one."""
    for name in (settings.c_compiler(), "cc", "gcc", "clang"):
        if name and shutil.which(name.split()[0]):
            return name.split()
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def function_name(program: Program) -> str:
    """C name of the exported function: the kernel's with a prefix, so that `exp` is not libm's."""
    return "tirgym_" + re.sub(r"\W", "_", program.workload.kernel.name, flags=re.ASCII)


def export_library(program: Program, path: str | os.PathLike[str]) -> ExportedLibrary:
    """Compile `program` to a shared library at `path`, with lib.h and lib.so.json beside it.

    The files appear whole or not at all. Raises BackendUnavailableError without a C compiler (it
    links), InvalidValueError for a path that ends in .h or .json or a backend other than llvm.
    """
    path = Path(path)
    compiler = require_exportable(program, path)
    function = function_name(program)
    inputs, outputs = tensors(program.workload)
    header, metadata = path.with_suffix(".h"), path.with_name(f"{path.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        work = Path(folder)
        code_key = _write_object(program, work / "kernel.o")
        source = c_source(function, inputs, outputs, program.target.num_threads)
        (work / "call.c").write_text(source, encoding="utf-8")
        link_library(compiler, work, (function, f"{function}_error"))
        info = _info(program, path, function, inputs, outputs, code_key)
        comment = f"{program.workload.uri} for {program.target}, made by tirgym."
        (work / "out.h").write_text(c_header(function, inputs, outputs, comment), "utf-8")
        (work / "out.json").write_text(json.dumps(info, indent=2) + "\n", "utf-8")
        for name, place in (("out.h", header), ("out.json", metadata), ("out.so", path)):
            os.replace(work / name, place)
    return ExportedLibrary(path, header, metadata, function, info)


def require_exportable(program: Program, path: Path) -> list[str]:
    """The C compiler that would link; raises what `export_library` raises before it does anything."""
    if path.suffix in (".h", ".json", ".c", ".py", ""):
        raise InvalidValueError("library to export", str(path), "a path that ends in .so")
    if program.target.backend != "llvm":
        raise InvalidValueError("backend to export from", program.target.backend, "llvm")
    compiler = c_compiler()
    if compiler is None:
        raise BackendUnavailableError(
            "no C compiler to link a library with: install gcc or clang, or pip install ziglang"
        )
    return compiler


def _write_object(program: Program, path: Path) -> str:
    """Write the object file of `program`; answers the key of its machine code."""
    from tirgym.harness.backends.code_key import code_key
    from tirgym.harness.backends.llvm_options import compiler_for
    from tirgym.harness.tensorir.program import TensorIRProgram

    if not isinstance(program, TensorIRProgram):
        raise InvalidValueError("dialect to export from", program.dialect, "tensorir")
    module = compiler_for(program.mod, program.target).compile(program.mod).mod
    module.write_to_file(str(path), "o")
    return code_key(module, program.mod, program.target)


def link_library(compiler: list[str], work: Path, exported: tuple[str, ...]) -> None:
    """Compile call.c and link it with kernel.o to out.so, which exports these names and needs all
    the rest itself; raises EvaluationError with the compiler's words."""
    if sys.platform == "darwin":
        exports = [f"-Wl,-exported_symbol,_{name}" for name in exported]
    else:
        names = f"{{ global: {' '.join(f'{name};' for name in exported)} local: *; }};\n"
        (work / "exports.map").write_text(names, encoding="utf-8")
        exports = ["-Wl,--version-script=exports.map", "-Wl,-z,defs"]
    command = [*compiler, "-O2", "-std=c11", "-fPIC", "-shared", "-o", "out.so"]
    command += ["call.c", "kernel.o", *exports, "-pthread", "-lm"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(done.stderr.split())[-400:]
        raise EvaluationError(f"{compiler[0]} could not link the library: {words}")


def _info(
    program: Program,
    path: Path,
    function: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    code_key: str,
) -> dict[str, Any]:
    roles = [("input", tensor) for tensor in inputs] + [("output", tensor) for tensor in outputs]
    return {
        "format": FORMAT,
        "library": path.name,
        "function": function,
        "arguments": [
            {"name": t.name, "role": role, "shape": list(t.shape), "dtype": t.dtype}
            for role, t in roles
        ],
        "alignment": ALIGNMENT,
        "workload": program.workload.uri,
        "backend": program.target.backend,
        "target": program.target.arch,
        "num_threads": program.target.num_threads,
        **threads_note(program.target.num_threads),
        "transforms": [str(step) for step in program.steps],
        "ir_key": program.ir_key,
        "code_key": code_key,
        "versions": compiler_versions(),
    }
