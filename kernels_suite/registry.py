"""Finding kernels and workloads: by name, by URI, from a Python file, or from other packages."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from tirgym.errors import DamagedFileError, InvalidValueError, TirgymError, UnknownNameError
from tirgym.kernels_suite.kernel import Kernel, Split, Workload, split_uri
from tirgym.kernels_suite.problem import require_reference
from tirgym.kernels_suite.suites import SUITES

__all__ = [
    "ENTRY_POINT_GROUP",
    "LOCAL_SUITE",
    "SUITES",
    "kernel_names",
    "list_kernels",
    "load_kernel",
    "load_workload",
    "opens_file",
    "register_kernel",
    "split_of",
    "user_code",
]

ENTRY_POINT_GROUP = "tirgym.kernels"
LOCAL_SUITE = "local"
"""The suite of kernels from files, `register_kernel`, and other packages."""
_FAMILIES = "tirgym.kernels_suite.families"
_MAX_DIM = 2**31 - 1

_registered: dict[str, Kernel] = {}
_files: dict[Path, ModuleType] = {}


def load_kernel(name_or_source: str, *, files: bool = True) -> Kernel:
    """The kernel called "matmul", "core-v0/matmul" or "path/to/file.py:attribute".

    A file is executed once; without `files`, which is for names that others wrote, it is refused
    unopened. Raises UnknownNameError, DamagedFileError for a file that cannot be executed,
    InvalidValueError for an attribute that is no Kernel or a file that is refused, and UsageError
    for a kernel without a reference.
    """
    source = _source(name_or_source)
    if source is None:
        suite, _, name = name_or_source.rpartition("/")
        return _required(_from_table(suite, name))
    return _required(_from_file(name_or_source, source, files))


def load_workload(
    uri_or_name: str, shape_overrides: Mapping[str, int] | None = None, *, files: bool = True
) -> Workload:
    """The workload of a URI, or of a kernel (see `load_kernel`) at its default shape.

    `shape_overrides` replaces single dimensions. Raises what `load_kernel` raises, and
    InvalidValueError for missing, unknown, repeated, non-integer or non-positive dimensions or a
    dtype that is not the kernel's.
    """
    if not _is_uri(uri_or_name):
        kernel = load_kernel(uri_or_name, files=files)
        shape = dict(kernel.default_shape)
    else:
        suite, name, query = split_uri(uri_or_name)
        source = _source(name)
        if source is None:
            kernel = _required(_from_table(suite, name))
        else:
            kernel = _required(_from_file(uri_or_name, source, files))
        dtype = query.pop("dtype", kernel.dtype)
        if dtype != kernel.dtype:
            raise InvalidValueError(f"dtype of kernel {kernel.name}", dtype, kernel.dtype)
        shape = {dim: _dimension(kernel, dim, size) for dim, size in query.items()}
    return Workload.of(kernel, {**shape, **(shape_overrides or {})})


def opens_file(uri_or_name: str) -> bool:
    """Whether `load_workload` executes a Python file for `uri_or_name`, however it is spelled."""
    try:
        name = split_uri(uri_or_name)[1] if _is_uri(uri_or_name) else uri_or_name
    except InvalidValueError:
        return False
    return _source(name) is not None


def _is_uri(text: str) -> bool:
    return text.startswith("tirgym:")


def _source(name: str) -> tuple[str, str] | None:
    """Path and attribute of "path/to/file.py:attribute", None for the name of a kernel.

    `name` has no escapes any more: this is the one place that decides whether a file is meant.
    """
    if name.endswith(".py"):
        return name, ""
    path, _, attribute = name.rpartition(":")
    return (path, attribute) if path.endswith(".py") else None


def _required(kernel: Kernel) -> Kernel:
    require_reference(kernel)
    return kernel


def _dimension(kernel: Kernel, dim: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or not 1 <= int(text) <= _MAX_DIM:
        accepted = f"an integer from 1 to {_MAX_DIM}"
        raise InvalidValueError(f"dimension {dim} of kernel {kernel.name}", text, accepted)
    return int(text)


def register_kernel(kernel: Kernel) -> Kernel:
    """Make `kernel` known by name in this process; answers it as a kernel of the local suite.

    Raises InvalidValueError if the name is taken, UsageError without a reference.
    """
    require_reference(kernel)
    if kernel.name in kernel_names():
        accepted = "a name that no kernel has yet"
        raise InvalidValueError("name of the new kernel", kernel.name, accepted)
    _registered[kernel.name] = replace(kernel, suite=LOCAL_SUITE)
    return _registered[kernel.name]


def list_kernels(suite: str | None = None, split: Split | None = None) -> tuple[Kernel, ...]:
    """Kernels in table order, of one suite or of all, of one split or of all."""
    names = [suite] if suite is not None else [*SUITES, LOCAL_SUITE]
    kernels = [_from_table(s, name) for s in names for name in _table(s)]
    return tuple(k for k in kernels if split is None or split_of(k) is split)


def kernel_names() -> tuple[str, ...]:
    """Every known name once: the suites' kernels in table order, then local ones."""
    return tuple(dict.fromkeys(name for suite in (*SUITES, LOCAL_SUITE) for name in _table(suite)))


def split_of(kernel: Kernel) -> Split | None:
    """The split of the kernel's family in its suite; None for kernels outside the suites."""
    suite = SUITES.get(kernel.suite)
    return suite.splits[kernel.family] if suite else None


def _table(suite: str) -> Iterable[str]:
    if suite == LOCAL_SUITE:
        return (*_third_party(), *_registered)
    if suite not in SUITES:
        raise UnknownNameError("suite", suite, (*SUITES, LOCAL_SUITE))
    return SUITES[suite].kernels


def _from_table(suite: str, name: str) -> Kernel:
    """The kernel `name` of `suite`, or of the first suite that has it if `suite` is empty."""
    for candidate in [suite] if suite else [*SUITES, LOCAL_SUITE]:
        if name not in _table(candidate):
            continue
        if candidate == LOCAL_SUITE:
            return _registered.get(name) or _third_party()[name]
        return _from_suite(candidate, name)
    raise UnknownNameError("kernel", name, tuple(_table(suite)) if suite else kernel_names())


@cache
def _from_suite(suite: str, name: str) -> Kernel:
    module, _, attribute = SUITES[suite].kernels[name].partition(":")
    kernel: Kernel = getattr(importlib.import_module(f"{_FAMILIES}.{module}"), attribute)
    return replace(kernel, suite=suite)


@cache
def _third_party() -> dict[str, Kernel]:
    """Kernels from the entry points of installed packages, by name."""
    found: dict[str, Kernel] = {}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        kernel = point.load()
        where = f"entry point {point.name} = {point.value} of group {ENTRY_POINT_GROUP}"
        if not isinstance(kernel, Kernel) or kernel.name != point.name:
            raise InvalidValueError(where, kernel, f"a Kernel called {point.name}")
        taken = point.name in found or any(point.name in s.kernels for s in SUITES.values())
        if taken:
            raise InvalidValueError(where, point.name, "a name that no kernel has yet")
        require_reference(kernel)
        found[point.name] = replace(kernel, suite=LOCAL_SUITE)
    return found


def _from_file(given: str, source: tuple[str, str], files: bool) -> Kernel:
    if not files:
        accepted = (
            "a kernel of a suite or an installed package (tirgym list): no Python file is run"
        )
        raise InvalidValueError("kernel", given, accepted)
    path, attribute = source
    module = _execute(path)
    kernels = [name for name, value in vars(module).items() if isinstance(value, Kernel)]
    example = f"{path}:NAME with NAME one of: {', '.join(kernels) or '(the file has no Kernel)'}"
    if not attribute:
        raise InvalidValueError("kernel", path, example)
    with user_code(path):  # a module may have a __getattr__
        there = hasattr(module, attribute)
        kernel = getattr(module, attribute) if there else None
    if not there:
        raise InvalidValueError("kernel", f"{path}:{attribute}", example)
    if not isinstance(kernel, Kernel):
        what = f"attribute {attribute} of {path}"
        raise InvalidValueError(what, type(kernel).__name__, f"a Kernel; {example}")
    return replace(kernel, suite=LOCAL_SUITE, source=f"{path}:{attribute}")


def _execute(path: str) -> ModuleType:
    """The module of the file at `path`, executed at most once in this process."""
    try:
        file = Path(path).expanduser().resolve()
        found = file.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a null byte, no such user
        raise DamagedFileError(path, "Python file with a Kernel", str(error)) from None
    if file in _files:
        return _files[file]
    if not found:
        problem = "there is no such file" + (
            "" if Path(path).is_absolute() else f" in {Path.cwd()}"
        )
        raise DamagedFileError(path, "Python file with a Kernel", problem)
    name = f"tirgym_file_{len(_files)}_{re.sub('[^0-9A-Za-z_]', '_', file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DamagedFileError(path, "Python file with a Kernel", "Python cannot load it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with user_code(path):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _files[file] = module
    return module


@contextmanager
def user_code(source: str) -> Iterator[None]:
    """The border to code of the user's kernel file: `source` is its path, or "path:attribute".

    Whatever it raises becomes a DamagedFileError that names file, line and error; errors of tirgym
    stay as they are.
    """
    try:
        yield
    except TirgymError:
        raise
    except (Exception, SystemExit) as error:  # a user's file raises anything, and may call exit
        problem = f"{type(error).__name__}: {error}{_place(error, source)}"
        raise DamagedFileError(source, "Python file with a Kernel", problem) from error


def _place(error: BaseException, source: str) -> str:
    """Where `error` was raised: the last line in the user's file, else the last of all."""
    if isinstance(error, SyntaxError):
        return ""  # its text says where
    frames = traceback.extract_tb(error.__traceback__)
    path, _ = _source(source) or (source, "")
    file = str(Path(path).expanduser().resolve())
    own = [frame for frame in frames if frame.filename == file]
    frame = (own or frames)[-1]
    return f" ({frame.filename}, line {frame.lineno})"
