"""Kernels across process borders: as bytes that a worker can load, and as a digest of what they do."""

from __future__ import annotations

import hashlib
import importlib.machinery
import pickle
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from tirgym.errors import EvaluationError
from tirgym.kernels_suite.kernel import Kernel

__all__ = ["kernel_digest", "to_bytes"]

_UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)
"""What pickling raises for objects that cannot leave their process."""


def to_bytes(value: object, *functions: object) -> bytes:
    """Pickle `value`; functions and classes of modules that another process cannot import by name
    (scripts, files loaded by path, notebooks) go along by value.

    `functions` are the callables and instances inside `value` whose modules matter. Raises
    EvaluationError if something cannot be pickled.
    """
    modules = {m for f in functions for m in _modules(f)}
    with ExitStack() as registered:
        for module in sorted(modules, key=lambda m: m.__name__):
            if not _importable(module):
                cloudpickle.register_pickle_by_value(module)
                registered.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return bytes(cloudpickle.dumps(value, protocol=5))
        except _UNPICKLABLE as error:
            text = f"{type(error).__name__}: {error}"
            raise EvaluationError(f"cannot send {value!r} to a worker: {text}") from error


def callables_of(kernel: Kernel) -> dict[str, Any]:
    """The functions of a kernel, by field name, sorted."""
    found = {f.name: getattr(kernel, f.name) for f in fields(kernel)}
    return {name: found[name] for name in sorted(found) if callable(found[name])}


def kernel_digest(kernel: Kernel) -> str:
    """Hash of the byte code, constants and defaults of what decides right from wrong: reference,
    inputs, scale, compare, terms. Changes when a user edits them, not from process to process."""
    hasher = hashlib.sha256()
    for name, function in callables_of(kernel).items():
        if name in ("reference", "inputs", "scale", "compare", "terms"):
            hasher.update(f"\n{name}:".encode())
            for part in _function_parts(function, set()):
                hasher.update(part.encode() + b"\0")
    hasher.update(repr((kernel.exact, kernel.num_outputs, sorted(kernel.values.items()))).encode())
    return hasher.hexdigest()[:16]


def _function_parts(function: Any, seen: set[int]) -> Iterator[str]:
    """Stable texts that describe a function, and the functions it calls in its own module."""
    function = getattr(function, "func", function)  # functools.partial
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or not isinstance(code, CodeType):
        yield repr(getattr(function, "__qualname__", type(function).__qualname__))
        return
    if id(code) in seen:
        return
    seen.add(id(code))
    yield from _code_parts(code)
    yield repr(function.__defaults__)
    for cell in function.__closure__ or ():
        value = cell.cell_contents
        if isinstance(value, int | float | str | bool | tuple | type(None)):
            yield repr(value)
        elif callable(value):
            yield from _function_parts(value, seen)
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from _function_parts(value, seen)
        elif isinstance(value, int | float | str | bool | tuple):
            yield f"{name}={value!r}"


def _code_parts(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield repr(constant)


def _modules(value: object) -> Iterator[ModuleType]:
    value = getattr(value, "func", value)
    name = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and module.__name__ != "__main__":  # cloudpickle sends __main__ by value
        yield module


def _importable(module: ModuleType) -> bool:
    """Whether a new process with this one's `sys.path` finds the same file under the same name."""
    path: Any = None
    parts = module.__name__.split(".")
    found: importlib.machinery.ModuleSpec | None = None
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        found = next((spec for spec in specs if spec is not None), None)
        if found is None:
            return False
        path = found.submodule_search_locations
    return found is not None and found.origin == getattr(module, "__file__", found.origin)
