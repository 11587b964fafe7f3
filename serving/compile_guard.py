"""`compile_guard`: a `Guard` on the terms of a compiler, for agents in other processes."""

from __future__ import annotations

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.agents import DecisionAgent
from tirgym.harness.decisions.guard import Guard

__all__ = ["BUDGET_MS", "CACHED", "FAILURES", "RETRY_S", "compile_guard"]

BUDGET_MS = 50.0
"""Of a decision."""
CACHED = 4096
"""Answers that are kept."""
FAILURES = 3
"""In a row, after which the agent is left alone."""
RETRY_S = 5.0
"""Seconds until it is tried again."""


def compile_guard(
    agent: DecisionAgent,
    budget_ms: float = BUDGET_MS,
    least_confidence: float = 0.0,
    cache: int = CACHED,
    failures: int | None = FAILURES,
    retry_s: float = RETRY_S,
) -> Guard:
    """`agent` behind a guard with a budget in milliseconds for each decision.

    What the agent has answered in the same context is taken from the cache; an agent that fails
    again and again costs its budget once in `retry_s` seconds. Raises InvalidValueError.
    """
    if not 0 < budget_ms < float("inf"):
        raise InvalidValueError("budget_ms", budget_ms, "a positive number of milliseconds")
    return Guard(
        agent,
        budget_ms / 1000,
        least_confidence=least_confidence,
        cache=cache,
        failures=failures,
        retry_s=retry_s,
    )
