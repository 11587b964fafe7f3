"""`Target`: the hardware that a program is compiled and timed for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Backend, explicit architecture and thread count; the same for baseline and candidate."""

    backend: str
    """name in the backend table: "llvm", …"""
    arch: str
    """explicit architecture, never "native": an LLVM mcpu such as "skylake-avx512", or "sm_90" """
    num_threads: int = 1

    def __str__(self) -> str:
        threads = "thread" if self.num_threads == 1 else "threads"
        return f"{self.backend}/{self.arch}/{self.num_threads} {threads}"
