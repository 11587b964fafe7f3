"""`without_huge_pages`: memory in pages of one size, so that processes agree about a kernel's time."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["without_huge_pages"]

_PR_SET_THP_DISABLE = 41


def without_huge_pages() -> None:
    """Use ordinary pages in this process and its children (Linux only, prctl(2), PR_SET_THP_DISABLE).

    NumPy asks for huge pages for arrays of 4 MiB and more; whether a process gets them depends on the
    state of the machine's memory. The unscheduled transpose of 1024 x 1024 float32, with its stride of
    4 KiB, took 3.5 ms in one process and 5.2 ms in the next for that reason, one scheduled program of
    it 0.21 ms in both.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
