"""`install`: from then on the compiler is imported without the library that it imports beside itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["install"]

PACKAGES = ("tvm", "tvm_ffi")
"""Of the compiler; the `__init__` of each imports torch wherever that is installed."""


class _Finder(MetaPathFinder):
    """Finds `PACKAGES` as the other finders do, and has them executed without torch."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for everything else."""
        if name not in PACKAGES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                with _hidden():
                    execute(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextmanager
def _hidden() -> Iterator[None]:
    """Inside, nothing finds torch, unless it was imported before; afterwards it can be imported.

    Other threads would miss it meanwhile, so with any running nothing is hidden.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def install() -> None:
    """Hide torch whenever the compiler is imported first, by whatever module.

    torch costs it 2 s of a processor and 200 MB, and the compiler's first error, which it raises while
    it is imported, as long again: to name the callers, it sorts the symbols of every library that is
    loaded. A process that builds and runs kernels has no use for either. Imported afterwards, torch works
    as ever, also on the compiler's tensors.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
