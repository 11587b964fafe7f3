"""`without_torch`: import the compiler without the library that it would import beside itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_torch"]


@contextmanager
def without_torch() -> Iterator[None]:
    """Inside, nothing finds torch, unless it was imported before; afterwards it can be imported.

    The compiler imports torch wherever it is installed: 2 s of a processor and 200 MB, which a process
    that builds and runs kernels has no use for. Other threads would miss it meanwhile, so with any
    running nothing is hidden.
    """
    if "torch" in sys.modules or threading.active_count() > 1:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
