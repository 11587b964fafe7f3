"""`Steps`: work that waits for workers, written as a generator, so that several can interleave."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from enum import IntEnum
from typing import Generic, TypeVar

from tirgym.errors import TirgymError
from tirgym.harness.pending import Pending, wait_any

__all__ = ["Steps", "Turn", "finish", "in_order"]

T = TypeVar("T")


class Turn(IntEnum):
    """What steps yield beside requests, to wait for more than a worker."""

    EARLY = 0
    """never yielded: what needs no turn"""
    FIRST = 1
    """everything that was begun earlier is finished"""
    ASKED = 2
    """besides, somebody waits for the answer"""


Steps = Generator[Pending | Turn, None, T]
"""Yields each request that it has to wait for; FIRST before what must not overlap, and ASKED before
what leaves a trace. Returns T."""


def finish(steps: Steps[T]) -> T:
    """Run `steps` alone to their end."""
    try:
        while True:
            waiting = next(steps)
            if isinstance(waiting, Pending):
                waiting.wait()
    except StopIteration as end:
        made: T = end.value
        return made
    finally:
        steps.close()


class _Begun(Generic[T]):
    """Steps on their way."""

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        self.ended = False
        self._waiting: Pending | Turn | None = None
        self._answer: list[T] = []
        self._error: TirgymError | None = None

    def go(self, turn: Turn) -> None:
        """As far as it goes without waiting, when it is its `turn`."""
        while not self.ended:
            if isinstance(self._waiting, Turn) and self._waiting > turn:
                return
            if isinstance(self._waiting, Pending) and not self._waiting.done:
                return
            try:
                self._waiting = next(self.steps)
            except StopIteration as end:
                self._answer, self.ended = [end.value], True
            except TirgymError as error:  # raised again when its turn comes
                self._error, self.ended = error, True

    def request(self) -> Pending | None:
        """What it waits for, if that is a worker."""
        waiting = self._waiting
        return waiting if isinstance(waiting, Pending) and not self.ended else None

    def answer(self) -> T:
        """What the steps returned; raises what they raised."""
        if self._error is not None:
            raise self._error
        return self._answer[0]


def in_order(starts: Iterator[Steps[T]], ahead: int = 1) -> Generator[T, None, None]:
    """Run steps of `starts` side by side and answer them in order, at most `ahead` before the next.

    Nothing new is begun between two answers, though the next one has its turn by then. What is on
    its way when this is closed, or when an exception such as KeyboardInterrupt passes, is closed
    with it.
    """
    begun: deque[_Begun[T]] = deque()
    try:
        while True:
            while len(begun) <= ahead and (steps := next(starts, None)) is not None:
                begun.append(_Begun(steps))
            if not begun:
                return
            _run(begun)
            answer = begun.popleft().answer()
            if begun:
                begun[0].go(Turn.FIRST)
            yield answer
    finally:
        for work in begun:
            work.steps.close()


def _run(begun: Sequence[_Begun[T]]) -> None:
    """Until the first one has ended; the others as far as they get meanwhile."""
    while True:
        for place, work in enumerate(begun):
            work.go(Turn.EARLY if place else Turn.ASKED)
        if begun[0].ended:
            return
        wait_any([request for work in begun if (request := work.request()) is not None])
