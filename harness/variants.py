"""`export_variants`: one library with several tuned shapes of a kernel, and a program for the rest."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tirgym.errors import IllegalTransformError, InvalidValueError
from tirgym.harness.backend import backend
from tirgym.harness.export import (
    ExportedLibrary,
    function_name,
    link_library,
    require_exportable,
)
from tirgym.harness.export_shim import ALIGNMENT, threads_note
from tirgym.harness.hardware import compiler_versions
from tirgym.harness.program import Program
from tirgym.harness.variants_shim import (
    FALLBACK,
    dispatcher_header,
    dispatcher_source,
    variant_symbol,
)
from tirgym.kernels_suite.kernel import Kernel, Workload
from tirgym.kernels_suite.problem import tensors

__all__ = ["FORMAT", "any_shape", "carry_over", "distance", "export_variants", "nearest"]

FORMAT = "tirgym-variants-1"


def distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """How far two shapes of a kernel are apart: sum over its sizes of |log of their ratio|."""
    return sum(abs(math.log(one[name] / other[name])) for name in one)


def nearest(shape: Mapping[str, int], tuned: Sequence[Program]) -> list[Program]:
    """`tuned`, the nearest shape first; equal ones in their order."""
    return sorted(tuned, key=lambda program: distance(shape, program.workload.shape))


def carry_over(workload: Workload, tuned: Sequence[Program]) -> tuple[Program, Program | None]:
    """A program for `workload` by the transforms of the nearest tuned shape where they are legal.

    Answers it with the tuned program that it comes from; None and the unscheduled program where no
    tuned one carries over. Nothing is measured: the caller passes it through the gate.
    """
    target = tuned[0].target
    start = backend(target.backend).start(workload, target)
    for source in nearest(workload.shape, tuned):
        program: Program = start
        try:
            for step in source.steps:
                program = program.apply(step)
        except IllegalTransformError:
            continue
        return program, source
    return start, None


def any_shape(kernel: Kernel, names: Sequence[str]) -> Any | None:
    """The unscheduled PrimFunc of `kernel` with variables for its sizes `names`.

    None if its `build` needs to know them. It is slow; whether it is right, a gate must say at
    shapes that are no variants.
    """
    from tvm import tirx

    try:
        with _no_guesses():
            func = kernel.build({name: tirx.Var(name, "int32") for name in names})
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None  # such a build computes with the sizes in Python
    return func if isinstance(func, tirx.PrimFunc) else None


@contextmanager
def _no_guesses() -> Iterator[None]:
    """Let `size == 2` raise ValueError where it is asked for its truth, and a size where it is hashed.

    TVM answers whether both sides are one object, so that `if stride == 2` and `stride in (1, 2)`
    would take the branch for any other value, whatever the size will be; so would `stride in {1, 2}`.
    """
    from tvm import tirx

    def refuse(_: Any) -> Any:
        raise ValueError("this depends on sizes that are not known")

    size = tirx.Var("size", "int32")
    asked = ((type(size == 0), "__bool__"), (type(size != 0), "__bool__"), (tirx.Var, "__hash__"))
    before = [getattr(kind, name) for kind, name in asked]
    for kind, name in asked:
        setattr(kind, name, refuse)
    try:
        yield
    finally:
        for (kind, name), answer in zip(asked, before, strict=True):
            setattr(kind, name, answer)


def export_variants(
    programs: Sequence[Program],
    path: str | os.PathLike[str],
    notes: Sequence[Mapping[str, Any]] = (),
    others: bool = True,
) -> ExportedLibrary:
    """Compile `programs`, one kernel at different shapes, to one library with a dispatcher.

    It takes the arrays' shapes with the arrays, runs the program made for exactly these, and
    otherwise the unscheduled program for any shape, if the kernel can be built without knowing its
    sizes; `others` False leaves that one out. `notes` go into the metadata, one for each program.
    Files and errors are those of `export_library`; raises InvalidValueError besides for no program,
    two programs of one shape, and programs of different kernels or targets.
    """
    path = Path(path)
    _require_alike(programs)
    compiler = require_exportable(programs[0], path)
    function = function_name(programs[0])
    sides = [tensors(program.workload) for program in programs]
    inputs, outputs = sides[0]
    header, metadata = path.with_suffix(".h"), path.with_name(f"{path.name}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        work = Path(folder)
        fallback = _write_objects(programs, work / "kernel.o", others)
        threads = programs[0].target.num_threads
        source = dispatcher_source(function, sides, fallback is not None, threads)
        (work / "call.c").write_text(source, encoding="utf-8")
        link_library(compiler, work, (function, f"{function}_variant", f"{function}_error"))
        info = _info(programs, path, function, fallback, notes)
        kernel, target = programs[0].workload.kernel.name, programs[0].target
        comment = f"{len(programs)} shapes of {kernel} for {target}, made by tirgym."
        text = dispatcher_header(function, inputs, outputs, comment)
        (work / "out.h").write_text(text, encoding="utf-8")
        (work / "out.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
        for name, place in (("out.h", header), ("out.json", metadata), ("out.so", path)):
            os.replace(work / name, place)
    return ExportedLibrary(path, header, metadata, function, info)


def _require_alike(programs: Sequence[Program]) -> None:
    if not programs:
        raise InvalidValueError("programs to export", [], "at least one")
    first = programs[0]
    for program in programs[1:]:
        if (program.workload.kernel, program.target) != (first.workload.kernel, first.target):
            other = f"{program.workload} for {program.target}"
            accepted = f"programs of {first.workload.kernel.name} for {first.target}"
            raise InvalidValueError("program to export", other, accepted)
    shapes = [program.workload.dims for program in programs]
    for number, shape in enumerate(shapes):
        if shape in shapes[:number]:
            raise InvalidValueError("shape to export", dict(shape), "each shape once")


def _write_objects(programs: Sequence[Program], path: Path, others: bool) -> Any | None:
    """Write one object file with every program and the one for any shape, which is answered."""
    import tvm

    from tirgym.harness.backends.llvm_options import compiler_for
    from tirgym.harness.tensorir.program import TensorIRProgram

    functions: dict[str, Any] = {}
    for number, program in enumerate(programs):
        if not isinstance(program, TensorIRProgram):
            raise InvalidValueError("dialect to export from", program.dialect, "tensorir")
        functions[variant_symbol(number)] = program.mod["main"]
    workload = programs[0].workload
    fallback = any_shape(workload.kernel, list(workload.shape)) if others else None
    if fallback is not None:
        functions[FALLBACK] = fallback
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    mod = tvm.IRModule(named)
    module = compiler_for(mod, programs[0].target).compile(mod).mod
    module.write_to_file(str(path), "o")
    return fallback


def _info(
    programs: Sequence[Program],
    path: Path,
    function: str,
    fallback: Any | None,
    notes: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    first = programs[0]
    inputs, outputs = tensors(first.workload)
    symbolic: list[list[str] | None] = [None] * (len(inputs) + len(outputs))
    if fallback is not None:
        symbolic = [[str(extent) for extent in buffer.shape] for buffer in fallback.params]
    roles = [("input", t) for t in inputs] + [("output", t) for t in outputs]
    return {
        "format": FORMAT,
        "library": path.name,
        "function": function,
        "kernel": first.workload.kernel.name,
        "sizes": list(first.workload.shape),
        "arguments": [
            {"name": t.name, "role": role, "dtype": t.dtype, "shape": shape}
            for (role, t), shape in zip(roles, symbolic, strict=True)
        ],
        "alignment": ALIGNMENT,
        "backend": first.target.backend,
        "target": first.target.arch,
        "num_threads": first.target.num_threads,
        **threads_note(first.target.num_threads),
        "any_shape": fallback is not None,
        "variants": [
            {
                "workload": program.workload.uri,
                "sizes": program.workload.shape,
                "shapes": [list(t.shape) for side in tensors(program.workload) for t in side],
                "transforms": [str(step) for step in program.steps],
                "ir_key": program.ir_key,
                **(notes[number] if number < len(notes) else {}),
            }
            for number, program in enumerate(programs)
        ],
        "versions": compiler_versions(),
    }
