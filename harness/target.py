"""`Target`: the hardware that a program is compiled and timed for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from tirgym.errors import InvalidValueError
from tirgym.whole_number import is_whole

__all__ = ["Target", "require_threads"]


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

    @classmethod
    def parse(cls, text: str) -> Self:
        """The target whose `str` is `text`; raises InvalidValueError."""
        match = re.fullmatch("([^/]+)/([^/]+)/([1-9][0-9]*) threads?", text)
        if match is None:
            raise InvalidValueError("target", text, "BACKEND/ARCHITECTURE/N threads")
        return cls(match[1], match[2], int(match[3]))


def require_threads(num_threads: int, most: int, where: str) -> int:
    """`num_threads` as an int; raises InvalidValueError unless it is a whole number from 1 to `most`."""
    if not is_whole(num_threads) or not 1 <= num_threads <= most:
        accepted = f"a whole number from 1 to {most} on {where}"
        raise InvalidValueError("num_threads", num_threads, accepted)
    return int(num_threads)
