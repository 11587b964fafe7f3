"""`WireAgent`: what decision agents share that are asked in messages."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Sequence

from tirgym.errors import AgentError
from tirgym.harness.closing import Closing
from tirgym.harness.decisions.point import DecisionPoint, Recommendation
from tirgym.serving.wire import MAX_BATCH

__all__ = ["WireAgent"]


class WireAgent(Closing):
    """A `DecisionAgent` that asks one question or many in a message."""

    def __init__(self) -> None:
        self._name = os.urandom(4).hex()
        self._numbers = itertools.count()

    def decide(self, point: DecisionPoint) -> Recommendation:
        """The answer; raises AgentError."""
        (answer,) = self._ask([point])
        if isinstance(answer, AgentError):
            raise answer
        return answer

    def decide_many(self, points: Sequence[DecisionPoint]) -> list[Recommendation | AgentError]:
        """The answers, asked for in one message, or a few if there are very many."""
        answers: list[Recommendation | AgentError] = []
        for start in range(0, len(points), MAX_BATCH):
            part = points[start : start + MAX_BATCH]
            try:
                answers += self._ask(part)
            except AgentError as error:
                answers += [error] * len(part)
        return answers

    def _ids(self, number: int) -> list[str]:
        """New ids of so many questions."""
        return [f"{self._name}-{next(self._numbers)}" for _ in range(number)]

    @abstractmethod
    def _ask(self, points: Sequence[DecisionPoint]) -> list[Recommendation | AgentError]:
        """One message and its answers; raises AgentError if there are none at all."""
