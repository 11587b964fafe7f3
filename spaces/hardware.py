"""Features of the hardware-context node: a function of the target alone, never of this machine."""

from __future__ import annotations

import math
from functools import lru_cache

from tirgym.harness.hardware import cpu_facts
from tirgym.harness.target import Target
from tirgym.spaces.graph import FEATURES, NodeType

__all__ = ["hardware_features", "log_size"]

_BACKENDS = FEATURES[NodeType.HARDWARE][:6]
_KIB, _MIB = 2**10, 2**20
_BIG_L2 = ("sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids", "apple-")


def log_size(x: float) -> float:
    """log2(1 + x) / 16, the scale of all sizes in observations."""
    return math.log2(1.0 + x) / 16.0


def _cpu(target: Target) -> tuple[int, int, int, int]:
    """Vector register, L1, L2 and last-level cache bytes, typical of the architecture.

    The caches of the machine at hand stay out, so that a policy that is trained on replayed
    measurements sees the same numbers wherever it runs.
    """
    vector = cpu_facts(target).vector_bytes
    l1 = 48 * _KIB if vector == 64 else 32 * _KIB
    l2 = 2 * _MIB if target.arch.startswith(_BIG_L2) else _MIB if vector == 64 else 512 * _KIB
    return vector, l1, l2, 32 * _MIB


def _gpu(arch: str) -> tuple[int, int, int, int]:
    """128-bit accesses, shared memory and L2 of one device, typical of the architecture."""
    shared = 228 * _KIB if arch.startswith(("sm_9", "sm_10")) else 100 * _KIB
    return 16, shared, 40 * _MIB, 0


@lru_cache(maxsize=64)
def hardware_features(target: Target) -> tuple[float, ...]:
    """The columns `COLUMNS[NodeType.HARDWARE]` for `target`."""
    name = target.backend if target.backend in _BACKENDS else "other_backend"
    sizes = _gpu(target.arch) if name in ("cuda", "triton", "rocm") else _cpu(target)
    one_hot = (float(name == known) for known in _BACKENDS)
    return (*one_hot, *(log_size(size) for size in sizes), log_size(target.num_threads))
