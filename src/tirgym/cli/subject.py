"""From what the user typed to workloads, targets and programs."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tirgym import settings
from tirgym.cli.output import note, working
from tirgym.errors import DamagedFileError, InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.target import Target
    from tirgym.harness.trace import Trace
    from tirgym.kernels_suite.kernel import Workload

__all__ = [
    "DEFAULT_BACKEND",
    "Subject",
    "chosen_target",
    "chosen_workload",
    "evaluate_fully",
    "is_trace",
    "load_subject",
    "named_workload",
    "require_writable",
    "target_to_run",
]

DEFAULT_BACKEND = "llvm"
_USER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a user's kernel file may raise by mistake; the compiler's errors are RuntimeErrors."""


@dataclass(frozen=True)
class Subject:
    """A program that a command is about, and the trace that it came from, if any."""

    program: Program
    trace: Trace | None = None


def is_trace(text: str) -> bool:
    """Whether `text` means a trace file: it ends in .json or is a file that is no Python file."""
    return text.endswith(".json") or (os.path.isfile(text) and not text.endswith(".py"))


def parse_shape(texts: Sequence[str], workload: Workload) -> Workload:
    """`workload` with the sizes of `texts` ("m=64,n=32", "k=8", "tiny") put in, left to right.

    Raises InvalidValueError for an unknown dimension or a size that is no positive integer.
    """
    from tirgym.kernels_suite.kernel import Workload

    kernel, shape = workload.kernel, workload.shape
    form = f"DIM=SIZE,… with {', '.join(shape) or 'no dimension'}, or tiny"
    for item in (part.strip() for text in texts for part in text.split(",")):
        if item == "tiny":
            shape = dict(kernel.tiny_shape)
            continue
        name, equals, size = item.partition("=")
        if not equals or name not in shape:
            raise InvalidValueError(f"--shape of kernel {kernel.name}", item, form)
        try:
            shape[name] = int(size)
        except ValueError:
            raise InvalidValueError(f"--shape of kernel {kernel.name}", item, form) from None
    return Workload.of(kernel, shape)


def chosen_workload(kernel: str, shape: Sequence[str] | None) -> Workload:
    """The workload that `kernel` names (suite name, URI or file.py:name) at `shape`."""
    if kernel.endswith(".json"):
        accepted = (
            "a kernel, not a trace (show, profile, verify, replay, compare, export take traces)"
        )
        raise InvalidValueError("kernel", kernel, accepted)
    workload = named_workload(kernel)
    return parse_shape(shape, workload) if shape else workload


def named_workload(name: str) -> Workload:
    """The workload of a suite name, URI or file.py:name, built once to see that it can be.

    Whatever the user's own file raises becomes a DamagedFileError with the line that raised it.
    """
    from tirgym.kernels_suite.problem import build_of
    from tirgym.kernels_suite.registry import load_workload

    if ".py" not in name:
        return load_workload(name)
    try:
        with redirect_stdout(sys.stderr):  # stdout is for results
            workload = load_workload(name)
            build_of(workload)
    except _USER_ERRORS as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
        raise DamagedFileError(name, "Python file with a Kernel", problem) from error
    return workload


def chosen_target(
    backend_name: str | None,
    arch: str | None,
    threads: int | None,
    recorded: Target | None = None,
) -> Target:
    """An explicit target; what is not given comes from `recorded`, else from the defaults.

    Raises UnknownNameError, BackendUnavailableError or InvalidValueError.
    """
    from tirgym.harness.backend import backend

    name = backend_name or (recorded.backend if recorded else DEFAULT_BACKEND)
    same_backend = recorded is not None and recorded.backend == name
    if arch is None and same_backend and recorded is not None:
        arch = recorded.arch
    if threads is None:
        threads = recorded.num_threads if recorded else settings.default_threads()
    return backend(name).target(arch, threads)


def load_subject(
    text: str,
    shape: Sequence[str] | None = None,
    backend_name: str | None = None,
    arch: str | None = None,
    threads: int | None = None,
) -> Subject:
    """The unscheduled program of a kernel, or the program that a trace makes."""
    from tirgym.harness.backend import backend

    if not is_trace(text):
        workload = chosen_workload(text, shape)
        target = chosen_target(backend_name, arch, threads)
        return Subject(backend(target.backend).start(workload, target))
    from tirgym.harness.replay import replay
    from tirgym.harness.trace import Trace

    if shape:
        raise InvalidValueError("--shape with a trace", ",".join(shape), "no --shape")
    trace = Trace.load(text)
    named_workload(trace.workload)
    target = chosen_target(backend_name, arch, threads, recorded=trace.target)
    if target != trace.target:
        note(f"warning: {text} was recorded for {trace.target}; it is replayed for {target}")
    return Subject(replay(trace, target), trace)


def target_to_run(
    trace: Trace, backend_name: str | None, arch: str | None, threads: int | None
) -> Target:
    """The target to run `trace` for: what is given, else this machine with the recorded threads.

    Says so on stderr when that is not the recorded target, since numbers are then not comparable.
    """
    if threads is None:
        threads = trace.target.num_threads
    target = chosen_target(backend_name or trace.target.backend, arch, threads)
    if target != trace.target:
        note(f"warning: recorded for {trace.target}, run for {target}: numbers do not compare")
    return target


def evaluate_fully(program: Program) -> Evaluation:
    """Judge and time one program in full and anew, in a worker that ends afterwards."""
    from tirgym.harness.local_evaluator import LocalEvaluator
    from tirgym.harness.recheck import evaluate_fresh

    with working("checking and measuring in full"), LocalEvaluator() as evaluator:
        return evaluate_fresh(evaluator, program)


def require_writable(path: Path, option: str) -> None:
    """Raise InvalidValueError unless a file can be written at `path`; leaves nothing.

    Called before long work, so that the result is not lost at the end.
    """
    accepted = "a path in a folder that can be written"
    if path.is_dir() or path.name == "":
        raise InvalidValueError(option, str(path), f"{accepted}; this is a folder")
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InvalidValueError(option, str(path), f"{accepted}; {folder} is a file")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InvalidValueError(option, str(path), f"{accepted} ({error.strerror})") from None
