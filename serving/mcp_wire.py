"""What crosses the border between the server and the process of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tirgym.serving.mcp_results import Exported, Result

__all__ = ["START", "TINY", "UNVERIFIED", "Answer", "Opening"]

TINY = "tiny"
"""A kernel's shape for tests."""
START = "start"
"""Name of the unscheduled program among the snapshots."""
UNVERIFIED = "unverified"
"""Status of a trace whose number is that of the search, or that has none."""


@dataclass(frozen=True, slots=True)
class Opening:
    """With what a session begins."""

    session: str
    kernel: str
    """name, URI, or file.py:NAME"""
    shape: Mapping[str, int] | str | None
    """single sizes, TINY, or None for the default"""
    space: str
    """action table: primitive, macro or both"""
    trials: int
    seconds: float
    agent: str
    """name of the player in traces"""
    files: bool
    """whether `kernel` may name a Python file, which is run"""
    backend: str
    arch: str | None
    threads: int
    store: str | None
    """path of the measurement store; None: the user's"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, or one line that says why there is none."""

    result: Result | None
    refusal: str = ""
    best: Exported | None = None
    """the best program of the session, where the call found a new one"""
