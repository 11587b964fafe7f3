"""From what the user typed to workloads, targets and programs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tirgym import settings
from tirgym.cli.output import note, working
from tirgym.errors import InvalidValueError

if TYPE_CHECKING:
    from tirgym.harness.evaluation import Evaluation
    from tirgym.harness.program import Program
    from tirgym.harness.target import Target
    from tirgym.harness.trace import Trace
    from tirgym.kernels_suite.kernel import Workload

__all__ = [
    "DEFAULT_BACKEND",
    "Subject",
    "at_home",
    "chosen_target",
    "chosen_workload",
    "evaluate_fully",
    "is_trace",
    "load_subject",
    "named_workload",
    "require_writable",
    "reshaped",
    "target_to_run",
]

DEFAULT_BACKEND = "llvm"
MAX_SIZE = 2**31 - 1
"""Largest dimension; indices are 32-bit."""
_COPIES = 4
"""Copies of all arrays that a worker has room for."""


@dataclass(frozen=True)
class Subject:
    """A program that a command is about, and the trace that it came from, if any."""

    program: Program
    trace: Trace | None = None


def is_trace(text: str) -> bool:
    """Whether `text` means a trace file.

    A name ending in .json does. A URI, file.py:name and the name of a kernel do not, whatever files
    lie here. Anything else does if there is such a file.
    """
    if text.endswith(".json"):
        return True
    from tirgym.kernels_suite.registry import opens_file

    if text.startswith("tirgym:") or opens_file(text):
        return False
    return os.path.isfile(text) and not _names_kernel(text)


def _names_kernel(text: str) -> bool:
    """Whether `text` is the name of a kernel, with its suite or without."""
    from tirgym.kernels_suite.registry import list_kernels

    kernels = list_kernels()
    return text in {k.name for k in kernels} | {f"{k.suite}/{k.name}" for k in kernels}


def parse_shape(texts: Sequence[str], workload: Workload) -> Workload:
    """`workload` with the sizes of `texts` ("m=64,n=32", "k=8", "tiny") put in, left to right.

    Raises InvalidValueError for an unknown dimension, a size that is no positive integer, and a
    shape that is too large to be checked.
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
        if shape[name] > MAX_SIZE:
            accepted = f"sizes from 1 to {MAX_SIZE}"
            raise InvalidValueError(f"--shape of kernel {kernel.name}", item, accepted)
    made = Workload.of(kernel, shape)
    _require_room(made)
    return made


def _require_room(workload: Workload) -> None:
    """Raise InvalidValueError if inputs and outputs are too large for a worker to check.

    A check holds several copies of them: as they are, in float64, and from the unscheduled program.
    """
    from tirgym.harness.fork_server import WorkerLimits
    from tirgym.kernels_suite.problem import tensors
    from tirgym.kernels_suite.registry import user_code

    limit, source = WorkerLimits().memory_bytes, workload.kernel.source
    with user_code(source) if source else nullcontext():
        total = sum(tensor.nbytes for side in tensors(workload) for tensor in side)
    if limit is not None and total > limit // _COPIES:
        shape = ", ".join(f"{name}={size}" for name, size in workload.dims)
        accepted = (
            f"arrays of at most {limit / _COPIES / 1e9:.1f} GB together; "
            f"these would take {total / 1e9:,.1f} GB"
        )
        raise InvalidValueError(f"shape of kernel {workload.kernel.name}", shape, accepted)


def chosen_workload(kernel: str, shape: Sequence[str] | None) -> Workload:
    """The workload that `kernel` names (suite name, URI or file.py:name) at `shape`."""
    if kernel.endswith(".json"):
        accepted = (
            "a kernel, not a trace (show, profile, explain, verify, replay, compare and export "
            "take traces)"
        )
        raise InvalidValueError("kernel", kernel, accepted)
    workload = named_workload(kernel)
    return parse_shape(shape, workload) if shape else workload


def named_workload(name: str) -> Workload:
    """The workload of a suite name, URI or file.py:name, built once to see that it can be.

    Whatever the user's own file raises becomes a DamagedFileError with the line that raised it.
    Raises InvalidValueError for a shape that is too large to be checked.
    """
    from tirgym.kernels_suite.problem import build_of
    from tirgym.kernels_suite.registry import load_workload, opens_file, user_code

    if not opens_file(name):
        workload = load_workload(name)
    else:
        with redirect_stdout(sys.stderr):  # stdout is for results
            workload = load_workload(name)
            with user_code(workload.kernel.source):
                build_of(workload)
    _require_room(workload)
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
        _require_findable(text)
        workload = chosen_workload(at_home(text, backend_name), shape)
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


def at_home(text: str, backend_name: str | None) -> str:
    """`text` with the suite that `backend_name` compiles, if it is the bare name of a kernel there."""
    from tirgym.harness.backend import home_name

    return home_name(text, backend_name or DEFAULT_BACKEND)


def _require_findable(text: str) -> None:
    """Say how `text`, which is no trace, is understood where that could surprise.

    Raises InvalidValueError for a path that leads nowhere.
    """
    from tirgym.kernels_suite.registry import LOCAL_SUITE, SUITES, opens_file

    if opens_file(text):
        return
    if os.path.isfile(text):
        note(f"{text} is the kernel of that name; write ./{text} for the file")
    suite, slash, _ = text.rpartition("/")
    if slash and not text.startswith("tirgym:") and suite not in (*SUITES, LOCAL_SUITE):
        accepted = "a kernel (tirgym list), a URI, file.py:NAME, or a trace file that exists"
        raise InvalidValueError("kernel or trace", text, accepted)


def reshaped(trace: Trace, shape: Sequence[str] | None) -> Trace:
    """`trace` for its kernel at another shape, with the record of its own shape left out.

    Says so on stderr. Raises InvalidValueError for a shape that the kernel cannot have.
    """
    workload = named_workload(trace.workload)
    if not shape:
        return trace
    workload = parse_shape(shape, workload)
    if workload.uri == trace.workload:
        return trace
    note(f"warning: recorded at {trace.workload}; its result does not apply to {workload.uri}")
    return replace(trace, workload=workload.uri, ir_key="", code_key="", result=None)


def target_to_run(
    trace: Trace, backend_name: str | None, arch: str | None, threads: int | None
) -> Target:
    """The target to run `trace` for: what is given, else this machine with the recorded threads; the
    recorded one where programs are checked and not run.

    Says so on stderr when that is not the recorded target, since numbers are then not comparable.
    """
    from tirgym.harness.evaluator import UNMEASURED

    if threads is None:
        threads = trace.target.num_threads
    name = backend_name or trace.target.backend
    if arch is None and name in UNMEASURED and name == trace.target.backend:
        arch = trace.target.arch
    target = chosen_target(name, arch, threads)
    if target != trace.target:
        note(f"warning: recorded for {trace.target}, run for {target}: numbers do not compare")
    return target


def evaluate_fully(program: Program) -> Evaluation:
    """Judge and time one program in full and anew, in several workers; the median session."""
    from tirgym.harness.evaluator import make_evaluator
    from tirgym.harness.verification import evaluate_in_sessions

    made = make_evaluator(program.target.backend)
    with working("checking and measuring in full"), closing(made) as evaluator:
        return evaluate_in_sessions(evaluator, program)


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
