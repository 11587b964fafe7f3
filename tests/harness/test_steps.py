"""`in_order` and `finish`: what may overlap, what waits for its turn, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tirgym.errors import EvaluationError
from tirgym.harness.channel import Channel
from tirgym.harness.pending import Pending
from tirgym.harness.steps import Steps, Turn, finish, in_order


class Log(list[str]):
    """What happened, and steps that write it down."""

    def steps(self, name: str, error: Exception | None = None) -> Steps[str]:
        self.append(f"{name} begins")
        try:
            yield Turn.FIRST
            self.append(f"{name} is first")
            if error is not None:
                raise error
            yield Turn.ASKED
            self.append(f"{name} is asked for")
            return name
        finally:
            self.append(f"{name} ends")


class Idle:
    """A worker that has answered already."""

    def __init__(self, answer: str) -> None:
        mine, theirs = socket.socketpair()
        self.channel = Channel(mine)
        with theirs:
            Channel(theirs).send(("result", answer))

    def kill(self) -> str:
        raise NotImplementedError

    def bury(self) -> str:
        raise NotImplementedError


@pytest.fixture
def answered() -> Iterator[Callable[[str], Pending]]:
    """Makes requests whose answer is on its way."""
    workers: list[Idle] = []

    def make(answer: str) -> Pending:
        workers.append(Idle(answer))
        return Pending(workers[-1], 60.0, None)

    yield make
    for worker in workers:
        worker.channel.close()


WHOLE = ("begins", "is first", "is asked for", "ends")


def test_steps_run_alone_to_their_end() -> None:
    log = Log()
    assert finish(log.steps("a")) == "a"
    assert log == [f"a {what}" for what in WHOLE]


def test_the_next_one_begins_early_and_leaves_its_trace_when_it_is_asked_for() -> None:
    log = Log()
    answers = in_order(iter([log.steps("a"), log.steps("b")]))
    assert next(answers) == "a"
    assert log == [*(f"a {what}" for what in WHOLE), "b begins", "b is first"]
    assert next(answers) == "b"
    assert log[-2:] == ["b is asked for", "b ends"]


def test_the_next_one_begins_while_a_worker_is_waited_for(
    answered: Callable[[str], Pending],
) -> None:
    log = Log()

    def slow() -> Steps[str]:
        yield Turn.ASKED
        pending = answered("from a worker")
        yield pending
        assert log[-1] == "b begins"
        return str(pending.result())

    answers = in_order(iter([slow(), log.steps("b")]))
    assert list(answers) == ["from a worker", "b"]
    assert log == [f"b {what}" for what in WHOLE]


def test_nothing_overlaps_when_nothing_is_to_run_ahead() -> None:
    log = Log()
    assert list(in_order(iter([log.steps("a"), log.steps("b")]), ahead=0)) == ["a", "b"]
    assert log == [f"{name} {what}" for name in "ab" for what in WHOLE]


def test_programs_are_asked_for_no_earlier_than_they_are_begun() -> None:
    log, asked = Log(), []

    def starts() -> Iterator[Steps[str]]:
        for name in "abcd":
            asked.append(name)
            yield log.steps(name)

    answers = in_order(starts())
    assert asked == []
    next(answers)
    assert asked == ["a", "b"]
    next(answers)
    assert asked == ["a", "b", "c"]


def test_what_one_raises_comes_out_at_its_turn_and_ends_the_others() -> None:
    log = Log()
    failing = log.steps("b", EvaluationError("no"))
    answers = in_order(iter([log.steps("a"), failing, log.steps("c")]))
    assert next(answers) == "a"
    with pytest.raises(EvaluationError, match="no"):
        next(answers)
    assert "c is first" not in log
    assert log.count("c begins") == log.count("c ends")


def test_what_is_on_its_way_ends_with_the_answers() -> None:
    log = Log()
    answers = in_order(iter([log.steps("a"), log.steps("b")]))
    next(answers)
    answers.close()
    assert log[-1] == "b ends"
    assert "b is asked for" not in log


def test_ctrl_c_ends_all_of_them(answered: Callable[[str], Pending]) -> None:
    log = Log()

    def interrupted() -> Steps[str]:
        yield answered("something")
        raise KeyboardInterrupt

    answers = in_order(iter([interrupted(), log.steps("z")]))
    with pytest.raises(KeyboardInterrupt):
        next(answers)
    assert log == ["z begins", "z ends"]
