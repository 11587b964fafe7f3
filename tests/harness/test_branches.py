"""`Branches`: several agents side by side, one batch for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable

import pytest
from toy import ToyCost, ToyEvaluator, ToyProgram, toy_start, toy_vocabulary

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Budget, Search
from tirgym.harness.branches import Branches
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped


class Scripted:
    """An agent that does what a function says."""

    name = "scripted"

    def __init__(self, play: Callable[[Search], None]) -> None:
        self.run = play


class Batches(ToyEvaluator):
    """Notes what it is handed together."""

    def evaluate_many(
        self, programs: Iterable[Program], level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Generator[Evaluation, None, None]:
        batch = list(programs)
        handed.append([p.dials[:2] for p in batch if isinstance(p, ToyProgram)])
        yield from super().evaluate_many(batch, level, fresh=fresh)


handed: list[list[tuple[int, ...]]] = []


@pytest.fixture(autouse=True)
def nothing_handed() -> None:
    handed.clear()


def alive() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == Scripted.name]


def dials(a: int, b: int) -> ToyProgram:
    return ToyProgram(toy_start().workload, toy_start().target, (a, b, 0))


def make_run(trials: int = 50, evaluator: ToyEvaluator | None = None, seed: int = 0) -> SearchRun:
    made = evaluator or Batches()
    return SearchRun(toy_start(), toy_vocabulary(), ToyCost(), made, Budget(trials), seed)


def walk(search: Search) -> None:
    """Random dials, two at a time, until the budget is spent."""
    while True:
        batch = [dials(*map(int, search.rng.integers(0, 9, 2))) for _ in range(2)]
        if len(list(search.evaluate_many(batch))) < 2:
            return


def column(b: int) -> Scripted:
    return Scripted(lambda search: consume(search, [dials(1, b), dials(2, b)]))


def consume(search: Search, programs: list[ToyProgram]) -> None:
    found = list(search.evaluate_many(programs))
    assert [e.ir_key for e in found] == [p.ir_key for p in programs]


def test_a_milestone_is_one_batch_that_takes_the_branches_in_turn() -> None:
    run = make_run()
    assert run.run(Branches([column(3), column(4), column(5)])) is Stopped.FINISHED
    assert handed == [[(0, 0)], [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)]]
    assert run.used == 6


def test_what_two_branches_propose_is_measured_once_and_told_to_both() -> None:
    evaluator = Batches()
    run = make_run(evaluator=evaluator)
    run.run(Branches([column(3), column(3)]))
    assert run.used == 2
    assert evaluator.calls == 3


def test_branches_of_different_length_meet_as_long_as_they_last() -> None:
    def long(search: Search) -> None:
        for a in range(1, 4):
            assert search.evaluate(dials(a, 7)) is not None

    run = make_run()
    run.run(Branches([column(3), Scripted(long)]))
    assert handed[1:] == [[(1, 3), (1, 7), (2, 3)], [(2, 7)], [(3, 7)]]


def test_a_seed_fixes_what_branches_that_differ_propose() -> None:
    kept = []
    for seed in (0, 0, 1):
        run = make_run(30, seed=seed)
        assert run.run(Branches([Scripted(walk)] * 3)) is Stopped.TRIALS
        assert run.used == 30
        kept.append([c.program.ir_key for c in run.history])
    assert kept[0] == kept[1] != kept[2]
    assert len(set(handed[1])) > 4, "branches draw from generators of their own"


def test_every_branch_sees_the_whole_history() -> None:
    seen = []

    def look(search: Search) -> None:
        search.evaluate(dials(1, int(search.rng.integers(0, 9))))
        seen.append([c.program for c in search.history])

    run = make_run()
    run.run(Branches([Scripted(look), Scripted(look)]))
    assert seen[0] == seen[1] == [c.program for c in run.history]


def test_branches_that_ignore_the_end_are_stopped_by_force() -> None:
    def deaf(search: Search) -> None:
        while True:
            for a in range(9):
                search.evaluate(dials(a, int(search.rng.integers(0, 9))))

    run = make_run(7)
    assert run.run(Branches([Scripted(deaf), Scripted(walk)])) is Stopped.TRIALS
    assert run.used == 7
    assert not alive()


def test_what_a_branch_raises_comes_out_and_ends_the_others() -> None:
    def broken(search: Search) -> None:
        search.evaluate(dials(1, 1))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_run().run(Branches([Scripted(walk), Scripted(broken)]))
    assert not alive()


def test_ctrl_c_keeps_what_was_measured_and_ends_the_branches() -> None:
    def interrupt(calls: int) -> None:
        if calls == 6:
            raise KeyboardInterrupt

    run = make_run(evaluator=ToyEvaluator(on_call=interrupt))
    assert run.run(Branches([Scripted(walk), Scripted(walk)])) is Stopped.INTERRUPTED
    assert len(run.history) == 5
    assert not alive()


def test_no_branch_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        Branches([])
