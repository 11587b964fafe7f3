"""`Guard`: asks an agent that may fail; whatever goes wrong, the static choice is taken and counted."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import NamedTuple

from tirgym.errors import AgentError, InvalidValueError
from tirgym.harness.decisions.agents import DecisionAgent
from tirgym.harness.decisions.point import DecisionPoint, Recommendation

__all__ = ["Guard", "GuardReport", "ask"]

_log = logging.getLogger(__name__)

REASONS = ("out_of_range", "raised", "slow", "unsure", "resting")
"""Why the static choice was taken: fields of `GuardReport`."""


@dataclass
class GuardReport:
    """What came of the questions."""

    asked: int = 0
    taken: int = 0
    """answers of the agent that were used"""
    cached: int = 0
    """those of them that it had given before"""
    out_of_range: int = 0
    raised: int = 0
    slow: int = 0
    unsure: int = 0
    """answers of less confidence than the guard asks for"""
    resting: int = 0
    """questions that were not put to the agent, since it had failed again and again"""
    messages: list[str] = field(default_factory=list)
    """why the agent was overruled, the first of each kind and question"""

    @property
    def overruled(self) -> int:
        """Questions that the static choice answered."""
        return sum(getattr(self, reason) for reason in REASONS)

    def __str__(self) -> str:
        """One line, such as `20 asked, 17 taken (4 from the cache), 3 static: 1 slow, 2 resting`."""
        cached = f" ({self.cached} from the cache)" if self.cached else ""
        text = f"{self.asked} asked, {self.taken} taken{cached}, {self.overruled} static"
        counts = [(getattr(self, reason), reason.replace("_", " ")) for reason in REASONS]
        why = ", ".join(f"{count} {reason}" for count, reason in counts if count)
        return f"{text}: {why}" if why else text


def ask(agent: DecisionAgent, points: Sequence[DecisionPoint]) -> list[object]:
    """What `agent` answers to each point, or the exception that it raised instead; never raises one.

    An agent with `decide_many` (`BatchAgent`) is asked once. What comes back may be anything: agents
    are foreign code, which may answer and raise what it likes and, like a worker, must not take the
    caller along.
    """
    many = getattr(agent, "decide_many", None)
    if callable(many):
        try:
            answers = list(many(points))
        except Exception as error:  # noqa: BLE001
            return [error] * len(points)
        if len(answers) == len(points):
            return answers
        return [AgentError(f"{len(answers)} answers to {len(points)} questions")] * len(points)
    answers = []
    for point in points:
        try:
            answers.append(agent.decide(point))
        except Exception as error:  # noqa: BLE001
            answers.append(error)
    return answers


class _Call(threading.Thread):
    """Questions in a thread that can be left behind."""

    def __init__(self, agent: DecisionAgent, points: Sequence[DecisionPoint]) -> None:
        super().__init__(daemon=True, name="tirgym-decision")
        self.agent, self.points = agent, points
        self.answers: list[object] = [AgentError("the agent ended its thread")] * len(points)

    def run(self) -> None:
        """Ask."""
        self.answers = ask(self.agent, self.points)


class _Overruled(NamedTuple):
    """Why there is no answer of the agent."""

    how: str
    """one of `REASONS`"""
    reason: str


class Guard:
    """Asks `agent`, at most `seconds` a question; never raises for what the agent does.

    An agent that is slow runs on in its thread, and is not asked again until that call has ended:
    until then every question counts as slow. `seconds` None waits for ever, in the caller's thread.

    Off unless asked for: answers with less confidence than `least_confidence` give way to the static
    choice; the last `cache` answers are kept, by everything that stands in the point, and given again
    without asking; after `failures` questions in a row without an answer in time the agent is left
    alone for `retry_s` seconds, after which one question tries it again.
    """

    def __init__(
        self,
        agent: DecisionAgent,
        seconds: float | None = 1.0,
        *,
        least_confidence: float = 0.0,
        cache: int = 0,
        failures: int | None = None,
        retry_s: float = 5.0,
    ) -> None:
        for name, limit in (("seconds", seconds), ("retry_s", retry_s)):
            if limit is not None and not (limit > 0 and math.isfinite(limit)):
                raise InvalidValueError(name, limit, "a positive number, or None")
        if not 0 <= least_confidence <= 1:
            raise InvalidValueError("least_confidence", least_confidence, "0 to 1")
        if cache < 0:
            raise InvalidValueError("cache", cache, "a number of answers, 0 for none")
        if failures is not None and failures < 1:
            raise InvalidValueError("failures", failures, "at least 1, or None")
        self.agent, self.seconds, self.least_confidence = agent, seconds, least_confidence
        self.cache, self.failures, self.retry_s = cache, failures, retry_s
        self.report = GuardReport()
        self._running: _Call | None = None
        self._known: dict[Hashable, Recommendation] = {}
        self._failed = 0
        self._rests_until = -math.inf

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The agent's answer if it is one, else the static choice with the reason."""
        return self.decide_many([point])[0]

    def decide_many(self, points: Sequence[DecisionPoint]) -> list[Recommendation]:
        """`decide` of each point, in order.

        An agent with `decide_many` is asked all that is not known at once, and has `seconds` for
        each; others are asked one after the other.
        """
        self.report.asked += len(points)
        keys: list[Hashable] = list(map(_context, points)) if self.cache else [*range(len(points))]
        known = {key: self._known[key] for key in keys if key in self._known}
        unknown = {k: p for k, p in zip(keys, points, strict=True) if k not in known}
        found = dict(zip(unknown, self._ask(list(unknown.values())), strict=True))
        answers = []
        for key, point in zip(keys, points, strict=True):
            if key in known:
                self.report.taken += 1
                self.report.cached += 1
                answers.append(known[key])
                continue
            answer = self._checked(point, found[key])
            if self.cache and isinstance(answer, Recommendation):
                known[key] = answer
            answers.append(self._taken(point, answer))
        if self.cache:
            self._keep(known)
        return answers

    # -- asking -----------------------------------------------------------------------------

    def _ask(self, points: list[DecisionPoint]) -> list[object]:
        """What the agent answers, or `_Overruled`."""
        together = callable(getattr(self.agent, "decide_many", None))
        groups = [points] if together and points else [[point] for point in points]
        return [answer for group in groups for answer in self._call(group)]

    def _call(self, points: list[DecisionPoint]) -> list[object]:
        if time.monotonic() < self._rests_until:
            text = f"not asked: it failed {self._failed} times in a row"
            return [_Overruled("resting", text)] * len(points)
        if self._running is not None and self._running.is_alive():
            return [_Overruled("slow", "still busy with an earlier question")] * len(points)
        call = self._running = _Call(self.agent, points)
        if self.seconds is None:
            call.run()
        else:
            call.start()
            call.join(self.seconds * len(points))
            if call.is_alive():
                self._count(failed=True)
                late = _Overruled("slow", f"no answer within {self.seconds:g} s")
                return [late] * len(points)
        self._running = None
        answers = [_or_overruled(answer) for answer in call.answers]
        self._count(failed=all(isinstance(answer, _Overruled) for answer in answers))
        return answers

    def _count(self, failed: bool) -> None:
        """Take note of a call without any answer, or of one with."""
        self._failed = self._failed + 1 if failed else 0
        if self.failures is not None and self._failed >= self.failures:
            self._rests_until = time.monotonic() + self.retry_s
            _log.warning(
                "%d failures in a row: static choices without asking for %g s",
                self._failed,
                self.retry_s,
            )

    # -- judging ----------------------------------------------------------------------------

    def _checked(self, point: DecisionPoint, answer: object) -> Recommendation | _Overruled:
        """`answer` if it can be used, else why not."""
        if isinstance(answer, _Overruled):
            return answer
        if not isinstance(answer, Recommendation):
            return _Overruled("out_of_range", f"{answer!r} is no Recommendation")
        if not _whole(answer.option) or not 0 <= answer.option < len(point.options):
            expected = f"expected 0 to {len(point.options) - 1}"
            return _Overruled("out_of_range", f"option {answer.option!r}, {expected}")
        least, confidence = self.least_confidence, answer.confidence
        if least and not (isinstance(confidence, Real) and confidence >= least):
            short = f"confidence {confidence!r}, expected {least:g} or more"
            return _Overruled("unsure", short)
        return answer

    def _taken(self, point: DecisionPoint, answer: Recommendation | _Overruled) -> Recommendation:
        """`answer`, or the static choice in its place; counted."""
        if isinstance(answer, Recommendation):
            self.report.taken += 1
            return answer
        how, reason = answer
        setattr(self.report, how, getattr(self.report, how) + 1)
        text = f"{point.key}: {reason}"[:300]
        _log.info("static choice, %s: %s", how, text)
        if text not in self.report.messages:
            self.report.messages.append(text)
        return Recommendation(point.default, 0.0, None, f"static choice: {reason}")

    def _keep(self, answers: Mapping[Hashable, Recommendation]) -> None:
        """Put `answers` last among those that are known, and forget the first beyond `cache`."""
        for key, answer in answers.items():
            self._known.pop(key, None)
            self._known[key] = answer
        while len(self._known) > self.cache:
            del self._known[next(iter(self._known))]


def _or_overruled(answer: object) -> object:
    """`answer`, unless it says why there is none."""
    if not isinstance(answer, Exception):
        return answer
    reason = f"{type(answer).__name__}: {answer}".splitlines()[0]
    return _Overruled("slow" if isinstance(answer, TimeoutError) else "raised", reason)


def _context(point: DecisionPoint) -> bytes:
    """Equal for points that say the same."""
    return hashlib.blake2b(point.to_json().encode(), digest_size=16).digest()


def _whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return int(value) == value  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return False
