"""`Status`: the one list of verdicts that an evaluation can end with."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FATAL", "Status"]


class Status(StrEnum):
    """Verdict of one evaluation. Only PASSED may carry a measurement."""

    PASSED = "passed"
    """checked in full and timed"""
    ILLEGAL = "illegal"
    """a rule, a static check or the compiler's verifier refused it before the build"""
    COMPILE_ERROR = "compile_error"
    """the compiler raised"""
    WRONG_RESULT = "wrong_result"
    """an output, an input or a guard band is not what it must be"""
    FLAKY = "flaky"
    """two runs of one binary disagree"""
    TIMEOUT = "timeout"
    """build or gate did not end in time; the worker was killed"""
    CRASH = "crash"
    """the worker process died (segmentation fault, abort)"""
    OUT_OF_MEMORY = "out_of_memory"
    """the memory limit was hit"""
    NOISY = "noisy"
    """correct, but the timings spread too far to give a number"""
    SUSPECT = "suspect"
    """correct, but faster than the hardware can be"""
    TOO_SLOW = "too_slow"
    """correct, but cut off at the slowdown limit"""
    INCOMPLETE = "incomplete"
    """the check could not cover everything; never a pass"""
    SEMANTIC_ONLY = "semantic_only"
    """checked without running the real binary; never a pass, never a number"""


FATAL = frozenset(
    {Status.WRONG_RESULT, Status.FLAKY, Status.CRASH, Status.TIMEOUT, Status.OUT_OF_MEMORY}
)
"""Verdicts that end an episode with a return of −penalty, or lower by what was lost before."""
