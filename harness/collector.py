"""`spare_collector`: Python's cyclic garbage collector need not walk what the compiler's import left."""

from __future__ import annotations

import gc
from functools import cache

from tirgym import settings

__all__ = ["spare_collector"]


@cache
def spare_collector() -> None:
    """Once per process: freeze the objects that live now, so that no later collection visits them.

    Importing the compiler leaves hundreds of thousands of objects that never die, and a step of an
    environment makes enough new ones that walking all of them again and again takes a fifth of its
    time. Objects alive now are still freed when nothing refers to them, only cycles among them are
    not looked for any more (`gc.unfreeze()` undoes it; TIRGYM_GC_FREEZE=0 prevents it).
    """
    if settings.freeze_collector():
        gc.collect()
        gc.freeze()
