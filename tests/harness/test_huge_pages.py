"""Ordinary pages: a process that asked for them, and its children, get no others."""

from __future__ import annotations

import sys

import pytest

from tirgym.harness.own_process import call_apart

CHILD = "import ctypes; print(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))"
"""Prints PR_GET_THP_DISABLE (man 2 prctl): 1 where huge pages are off."""
ASK = "__import__('tirgym.harness.huge_pages', fromlist=['_']).without_huge_pages()"
TOLD = f"__import__('subprocess').check_output([{sys.executable!r}, '-c', {CHILD!r}], text=True)"


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_children_of_a_process_that_asked_have_no_huge_pages() -> None:
    assert call_apart(eval, TOLD, num_threads=1) == "0\n"
    assert call_apart(eval, f"({ASK}, {TOLD})[1]", num_threads=1) == "1\n"
