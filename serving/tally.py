"""`Tally`: what came of the questions that a service was asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["BUCKETS_S", "OUTCOMES", "Tally"]

OUTCOMES = ("answered", "raised", "timeout", "invalid", "busy")
"""Of a decision: the agent answered, raised, was late, answered what is no answer, was not asked."""

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histogram of seconds; around the budgets of compilers."""


@dataclass
class Tally:
    """Counts since the service began."""

    decisions: Counter[str] = field(default_factory=Counter)
    """by outcome"""
    responses: Counter[int] = field(default_factory=Counter)
    """by HTTP status"""
    seconds: float = 0.0
    """spent on messages, waiting included"""
    messages: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """by the bucket that their seconds fall into; the last is that of all longer ones"""

    def add_message(self, seconds: float) -> None:
        """Take note of a message that was answered after so many seconds."""
        self.seconds += seconds
        self.messages[bisect_left(BUCKETS_S, seconds)] += 1

    @property
    def messages_total(self) -> int:
        """Messages that were answered."""
        return sum(self.messages)

    def __str__(self) -> str:
        """One line, such as `12 decisions: 10 answered, 2 timeout`."""
        total = self.decisions.total()
        parts = ", ".join(f"{self.decisions[o]} {o}" for o in OUTCOMES if self.decisions[o])
        noun = "decision" if total == 1 else "decisions"
        return f"{total} {noun}: {parts}" if total else "no decisions"
