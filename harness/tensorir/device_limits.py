"""`DeviceLimits`: what a GPU-like target allows, by backend; None for a CPU.

The figures decide legality: they stand in one table here, and rules ask for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from tirgym.harness.target import Target

__all__ = ["LIMITS", "DeviceLimits", "device_limits"]


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What one block of threads may use, and what the language of the device can say."""

    max_threads: int
    """threads of a block"""
    thread_extents: tuple[int, int, int]
    """most threads along x, y, z"""
    grid_extents: tuple[int, int, int]
    """most blocks along x, y, z"""
    shared_bytes: int
    """shared memory of a block"""
    local_bytes: int
    """memory of one thread; more spills, or does not build"""
    lanes: tuple[int, ...]
    """lengths of its vector types"""
    scopes: tuple[str, ...] = ("global", "local", "shared")
    """memory that intermediate buffers may lie in"""
    vector_bytes: int = 0
    """most that a copy moves at a time, where that may be a longer vector than `lanes` says"""
    features: tuple[str, ...] = ()
    """what transforms may ask for: "wmma" (instructions of a warp on matrices), "cp.async" (copies to
    shared memory that run beside the threads)"""


LIMITS: Mapping[str, str] = {
    "cuda": "tirgym.harness.backends.gpu_limits:limits_of",
    "opencl": "tirgym.harness.opencl.limits:limits_of",
    "rocm": "tirgym.harness.backends.gpu_limits:limits_of",
}
"""Backend → "module:function" that tells the limits of a target; others have no thread axes."""


@lru_cache(maxsize=64)
def device_limits(target: Target) -> DeviceLimits | None:
    """The limits of `target`, None where loops cannot be bound to threads."""
    where = LIMITS.get(target.backend)
    if where is None:
        return None
    module, _, attribute = where.partition(":")
    made: DeviceLimits = getattr(import_module(module), attribute)(target)
    return made
