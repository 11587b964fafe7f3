"""Decision agents for services in other processes: `tirgym serve --agent served_agents:Last`."""

from __future__ import annotations

import sys
import time

from tirgym.harness.decisions import DecisionPoint, Recommendation

__all__ = ["Broken", "Last", "Sleeper"]


class Last:
    """The last option; says something on stdout, which belongs to the answers of a service."""

    def __init__(self, confidence: float = 1.0, note: str = "") -> None:
        self.confidence, self.note = confidence, note

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The last option."""
        print("thinking about", point.key)
        return Recommendation(len(point.options) - 1, self.confidence, None, self.note)


class Sleeper:
    """Sleeps through the first question, and answers the others at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = float(seconds)

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The last option."""
        seconds, self.seconds = self.seconds, 0.0
        time.sleep(seconds)
        return Recommendation(len(point.options) - 1)


class Broken:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no weights")


class Mute:
    """Is no agent."""


def talk() -> None:
    """A program that answers every line with nonsense."""
    for _ in sys.stdin:
        print('{"nonsense": 1}', flush=True)


def flood() -> None:
    """A program that answers the first line well, and the second with megabytes."""
    sys.stdin.readline()
    print(
        '{"protocols": [], "agent": "", "version": "", "max_batch": 1, "limit_ms": 1}', flush=True
    )
    sys.stdin.readline()
    sys.stdout.write("x" * 5_000_000)
    sys.stdout.flush()
    time.sleep(60)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
