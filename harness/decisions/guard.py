"""`Guard`: asks an agent that may fail; whatever goes wrong, the static choice is taken and counted."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field

from tirgym.errors import InvalidValueError
from tirgym.harness.decisions.agents import DecisionAgent
from tirgym.harness.decisions.point import DecisionPoint, Recommendation

__all__ = ["Guard", "GuardReport"]


@dataclass
class GuardReport:
    """What came of the questions."""

    asked: int = 0
    taken: int = 0
    """answers of the agent that were used"""
    out_of_range: int = 0
    raised: int = 0
    slow: int = 0
    messages: list[str] = field(default_factory=list)
    """why the agent was overruled, the first of each kind and question"""

    @property
    def overruled(self) -> int:
        """Questions that the static choice answered."""
        return self.out_of_range + self.raised + self.slow


class _Call(threading.Thread):
    """One question in a thread that can be left behind."""

    def __init__(self, agent: DecisionAgent, point: DecisionPoint) -> None:
        super().__init__(daemon=True, name="tirgym-decision")
        self.agent, self.point = agent, point
        self.answer: object = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask. Foreign code may raise anything; like a worker, it must not take the caller along."""
        try:
            self.answer = self.agent.decide(self.point)
        except Exception as error:  # noqa: BLE001
            self.error = error


class Guard:
    """Asks `agent`, at most `seconds` a question; never raises for what the agent does.

    An agent that is slow runs on in its thread, and is not asked again until that call has ended:
    until then every question counts as slow. `seconds` None waits for ever, in the caller's thread.
    """

    def __init__(self, agent: DecisionAgent, seconds: float | None = 1.0) -> None:
        if seconds is not None and not (seconds > 0 and math.isfinite(seconds)):
            raise InvalidValueError("seconds", seconds, "a positive number, or None")
        self.agent, self.seconds = agent, seconds
        self.report = GuardReport()
        self._running: _Call | None = None

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The agent's answer if it is one, else the static choice with the reason."""
        self.report.asked += 1
        if self._running is not None and self._running.is_alive():
            return self._overruled("slow", point, "still busy with an earlier question")
        call = self._running = _Call(self.agent, point)
        if self.seconds is None:
            call.run()
        else:
            call.start()
            call.join(self.seconds)
            if call.is_alive():
                return self._overruled("slow", point, f"no answer within {self.seconds:g} s")
        self._running = None
        if call.error is not None:
            reason = f"{type(call.error).__name__}: {call.error}".splitlines()[0]
            return self._overruled("raised", point, reason)
        answer = call.answer
        if not isinstance(answer, Recommendation):
            return self._overruled("out_of_range", point, f"{answer!r} is no Recommendation")
        if not _whole(answer.option) or not 0 <= answer.option < len(point.options):
            expected = f"expected 0 to {len(point.options) - 1}"
            return self._overruled("out_of_range", point, f"option {answer.option!r}, {expected}")
        self.report.taken += 1
        return answer

    def _overruled(self, how: str, point: DecisionPoint, reason: str) -> Recommendation:
        setattr(self.report, how, getattr(self.report, how) + 1)
        text = f"{point.key}: {reason}"[:300]
        if text not in self.report.messages:
            self.report.messages.append(text)
        return Recommendation(
            point.default, 0.0, None, f"static choice; the agent failed: {reason}"
        )


def _whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return int(value) == value  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return False
