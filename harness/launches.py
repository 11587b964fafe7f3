"""`DeviceCode`: what TVM makes of a thread-bound program for a GPU-like device: source and launches.

Plain data, for machines without TVM too.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

__all__ = ["DeviceCode", "Launch"]

_COMMENT = re.compile(r"//[^\n]*")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch."""

    kernel: str
    grid: tuple[int, ...]
    """blocks along x, y, z"""
    block: tuple[int, ...]
    """threads of a block along x, y, z"""
    arguments: tuple[int, ...]
    """positions among the function's parameters followed by the workspaces"""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A compiled program."""

    source: str
    """of all kernels, in the language of the device's compiler"""
    launches: tuple[Launch, ...]
    """in order"""
    workspaces: tuple[int, ...]
    """bytes of each intermediate buffer in the device's global memory"""

    @property
    def code_key(self) -> str:
        """16 hex digits of source without comments, launches and workspaces."""
        lines = _COMMENT.sub("", self.source).splitlines()
        text = "\n".join(line.rstrip() for line in lines if line.strip())
        return hashlib.sha256(f"{text}\n{self.launches}\n{self.workspaces}".encode()).hexdigest()[
            :16
        ]

    def text(self) -> str:
        """The source with the launches as comments before it."""
        lines = [
            f"// launch {step.kernel} grid {step.grid} block {step.block} buffers {step.arguments}"
            for step in self.launches
        ]
        lines += [f"// workspace of {nbytes} bytes" for nbytes in self.workspaces]
        return "\n".join([*lines, self.source])
