"""The suites: versioned literal tables that are never edited once released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirgym.kernels_suite.kernel import Split

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """Kernels by name, and the split of each family."""

    name: str
    splits: Mapping[str, Split]
    """family → split"""
    kernels: Mapping[str, str]
    """kernel → "family module:ATTRIBUTE", below `tirgym.kernels_suite.families` """


CORE_V0 = Suite(
    name="core-v0",
    splits={
        "elementwise": Split.TRAIN,
        "matmul": Split.TRAIN,
        "softmax": Split.VAL,
    },
    kernels={
        "add": "elementwise:ADD",
        "matmul": "matmul:MATMUL",
        "softmax": "softmax:SOFTMAX",
    },
)

SUITES: Mapping[str, Suite] = {suite.name: suite for suite in (CORE_V0,)}
