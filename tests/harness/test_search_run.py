"""Counting of trials, budgets, repetitions, and ends of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import pytest
from fakes import passed
from toy import ToyCost, ToyEvaluator, ToyProgram, toy_start, toy_vocabulary

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Budget, Search
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.search_run import SearchRun, Stopped
from tirgym.harness.status import Status


class Scripted:
    """An agent that does what a function says."""

    name = "scripted"

    def __init__(self, play: Callable[[Search], None]) -> None:
        self.run = play


def make_run(
    trials: int = 10,
    evaluator: ToyEvaluator | None = None,
    patience: int | None = None,
    **keywords: object,
) -> SearchRun:
    return SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        evaluator or ToyEvaluator(),
        Budget(trials, patience=patience),
        **keywords,  # type: ignore[arg-type]
    )


def dials(a: int, b: int, c: int = 0) -> ToyProgram:
    return ToyProgram(toy_start().workload, toy_start().target, (a, b, c))


def test_the_unscheduled_program_is_measured_first_and_costs_nothing() -> None:
    run = make_run()
    run.run(Scripted(lambda search: None))
    assert [c.program.steps for c in run.history] == [()]
    assert run.used == 0
    assert not run.trials[0].charged
    assert run.stopped is Stopped.FINISHED


def test_equal_ir_asks_the_evaluator_once() -> None:
    evaluator = ToyEvaluator()
    run = make_run(evaluator=evaluator)
    first, second = run.evaluate(dials(1, 0)), run.evaluate(dials(1, 0))
    assert first is second
    assert evaluator.calls == run.used == len(run.history) == 1


def test_equal_machine_code_is_not_charged_and_keeps_the_first_number() -> None:
    run = make_run()
    first, second = run.evaluate(dials(1, 0, 0)), run.evaluate(dials(1, 0, 4))
    assert first is not None
    assert second is not None
    assert run.used == 1
    assert second.measurement == first.measurement
    assert second.ir_key != first.ir_key
    assert [t.charged for t in run.trials] == [True, False]


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.WRONG_RESULT, Status.TOO_SLOW])
def test_failures_are_charged(status: Status) -> None:
    run = make_run(evaluator=ToyEvaluator(lambda program, level: status))
    run.evaluate(dials(1, 0))
    run.evaluate(dials(2, 0))
    assert run.used == 2
    assert run.ranked() == []


def test_no_agent_exceeds_its_trials_even_if_it_ignores_none() -> None:
    evaluator = ToyEvaluator()
    run = make_run(trials=5, evaluator=evaluator)

    def deaf(search: Search) -> None:
        while True:
            for a in range(9):
                for b in range(9):
                    search.evaluate(dials(a, b))

    assert run.run(Scripted(deaf)) is Stopped.TRIALS
    assert run.used == 5
    assert evaluator.calls == 6  # with the unscheduled program


def test_free_repetitions_end_too() -> None:
    run = make_run(trials=1)
    seen = 0

    def repeat(search: Search) -> None:
        nonlocal seen
        program = search.start
        for number in range(10_000):
            # ever new IR keys, always the machine code of the unscheduled program
            program = dials(0, 0, number)
            if search.evaluate(program) is None:
                return
            seen += 1

    assert run.run(Scripted(repeat)) is Stopped.DUPLICATES
    assert run.used == 0
    assert seen < 100


def test_the_time_budget_stops_the_run() -> None:
    now = 0.0

    def tick(calls: int) -> None:
        nonlocal now
        now += 1.0

    run = SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        ToyEvaluator(on_call=tick),
        Budget(100, seconds=3.5),
        clock=lambda: now,
    )

    def spend(search: Search) -> None:
        for a in range(9):
            if search.evaluate(dials(a, 1)) is None:
                return

    assert run.run(Scripted(spend)) is Stopped.TIME
    assert run.used == 3
    assert run.search.out_of_time()


def test_ctrl_c_keeps_what_was_measured() -> None:
    def interrupt(calls: int) -> None:
        if calls == 4:
            raise KeyboardInterrupt

    run = make_run(evaluator=ToyEvaluator(on_call=interrupt))

    def spend(search: Search) -> None:
        for a in range(1, 9):
            search.evaluate(dials(a, 0))

    assert run.run(Scripted(spend)) is Stopped.INTERRUPTED
    assert [c.program.dials[0] for c in run.history] == [0, 1, 2]  # type: ignore[attr-defined]


def test_what_an_agent_raises_comes_out() -> None:
    def broken(search: Search) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        make_run().run(Scripted(broken))


class Ahead(ToyEvaluator):
    """Is a program ahead of what it is asked for, and knows what it was handed in vain."""

    def evaluate_many(
        self, programs: Iterable[Program], level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Generator[Evaluation, None, None]:
        self.handed: list[Program] = []
        for program in programs:
            self.handed.append(program)
            if len(self.handed) > 1:
                yield self.evaluate(self.handed[-2], level, fresh=fresh)
        if self.handed:
            yield self.evaluate(self.handed[-1], level, fresh=fresh)


BATCHES = [
    [dials(1, 0), dials(2, 0), dials(2, 0), dials(1, 0, 4), dials(3, 0)],
    [dials(0, 0), dials(4, 0), dials(3, 0), dials(5, 0), dials(5, 0, 1), dials(6, 0)],
]
"""With equal IR and equal code, within a batch and between the two."""


@pytest.mark.parametrize("trials", [1, 3, 5, 6, 7, 20])
def test_batches_count_as_one_program_after_the_other(trials: int) -> None:
    def one_by_one(search: Search) -> None:
        for batch in BATCHES:
            for program in batch:
                evaluation = search.evaluate(program)
                if evaluation is None:
                    break
                seen.append(evaluation)

    def together(search: Search) -> None:
        for batch in BATCHES:
            seen.extend(search.evaluate_many(batch))

    kept = []
    for play in (one_by_one, together):
        seen: list[Evaluation] = []
        run = make_run(trials, Ahead())
        run.run(Scripted(play))
        trail = [(t.number, t.charged, t.candidate.program.ir_key) for t in run.trials]
        kept.append((seen, trail, run.used, run.stopped))
    assert kept[0] == kept[1]


def test_the_evaluator_is_handed_no_more_programs_than_trials_are_left() -> None:
    evaluator = Ahead()
    run = make_run(3, evaluator)
    answers = list(run.evaluate_many([dials(a, 0) for a in range(1, 8)]))
    assert len(answers) == run.used == evaluator.calls == 3
    assert [p.dials[0] for p in evaluator.handed] == [1, 2, 3]  # type: ignore[attr-defined]


def test_what_was_begun_when_time_ends_is_not_part_of_the_run() -> None:
    now = 0.0

    def tick(calls: int) -> None:
        nonlocal now
        now += 1.0

    run = SearchRun(
        toy_start(),
        toy_vocabulary(),
        ToyCost(),
        Ahead(on_call=tick),
        Budget(100, seconds=2.5),
        clock=lambda: now,
    )
    assert len(list(run.evaluate_many([dials(a, 1) for a in range(9)]))) == 3
    assert len(run.history) == 3
    assert run.stopped is Stopped.TIME
    assert list(run.evaluate_many([dials(0, 1), dials(8, 1)])) == [run.history[0].evaluation]


def test_agents_that_ignore_the_end_of_batches_are_stopped() -> None:
    evaluator = ToyEvaluator()
    run = make_run(2, evaluator)

    def deaf(search: Search) -> None:
        while True:
            for a in range(9):
                list(search.evaluate_many([dials(a, b) for b in range(9)]))

    assert run.run(Scripted(deaf)) is Stopped.TRIALS
    assert evaluator.calls == 3


def climb(search: Search) -> None:
    """Best at dial 5, then ten programs that are no better."""
    programs = [dials(a, 0) for a in range(1, 6)] + [dials(0, b) for b in range(1, 7)]
    list(search.evaluate_many(programs))


def test_patience_ends_a_run_that_gains_less_than_5_percent() -> None:
    run = make_run(100, patience=4)
    assert run.run(Scripted(climb)) is Stopped.CONVERGED
    assert run.used == 5 + 4
    assert run.ranked()[0].program.dials[0] == 5  # type: ignore[attr-defined]
    assert make_run(100).run(Scripted(climb)) is Stopped.FINISHED


def test_patience_counts_trials_from_the_last_gain_and_small_steps_add_up() -> None:
    steps = iter([1.0, 1.03, 1.06, 1.07, 1.08, 1.09, 1.10])

    class Creeping(ToyEvaluator):
        def evaluate(
            self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
        ) -> Evaluation:
            return passed(next(steps), program.ir_key)

    run = make_run(100, Creeping(), patience=3)
    run.run(Scripted(climb))
    # 1.06 is the gain that counts; 1.07, 1.08 and 1.09 are not 5 % above it
    assert run.trials[-1].best_speedup == 1.09
    assert run.stopped is Stopped.CONVERGED


def test_ranking_is_by_speedup_with_one_entry_for_each_code_key() -> None:
    bad = {(2, 0)}
    run = make_run(
        evaluator=ToyEvaluator(
            lambda program, level: Status.FLAKY if program.dials[:2] in bad else Status.PASSED
        )
    )
    for program in (dials(1, 0), dials(3, 0), dials(3, 0, 1), dials(2, 0)):
        run.evaluate(program)
    assert [c.program.dials for c in run.ranked()] == [(3, 0, 0), (1, 0, 0)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "budget",
    [Budget(0), Budget(-1), Budget(5, 0.0), Budget(5, float("nan")), Budget(5, patience=0)],
)
def test_bad_budgets_are_refused(budget: Budget) -> None:
    with pytest.raises(InvalidValueError, match="expected a"):
        SearchRun(toy_start(), toy_vocabulary(), ToyCost(), ToyEvaluator(), budget)
