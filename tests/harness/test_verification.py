"""How the winner of a run is chosen and what is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy import ToyEvaluator, ToyProgram, toy_start

from tirgym.errors import InvalidValueError
from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level, Measurement, TimingStats
from tirgym.harness.in_sessions import MOST_SESSIONS
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.verification import SESSIONS, evaluate_in_sessions, verify_best


def ranked(*dials: tuple[int, int, int]) -> list[Candidate]:
    """Candidates that passed in training."""
    start, judge = toy_start(), ToyEvaluator()
    programs = [ToyProgram(start.workload, start.target, d) for d in dials]
    return [Candidate(p, judge.evaluate(p)) for p in programs]


def failing_in_full(*bad: tuple[int, int, int]) -> ToyEvaluator:
    return ToyEvaluator(
        lambda program, level: (
            Status.WRONG_RESULT if level is Level.FULL and program.dials in bad else Status.PASSED
        )
    )


def test_a_winner_that_fails_in_full_gives_way_to_the_next() -> None:
    best, second = (5, 3, 0), (5, 2, 0)
    verdict = verify_best(ranked(best, second), toy_start(), failing_in_full(best))
    assert verdict.candidate.program.dials == second  # type: ignore[attr-defined]
    assert verdict.candidate.evaluation.level is Level.FULL
    assert [c.evaluation.status for c in verdict.checked] == [Status.WRONG_RESULT, Status.PASSED]


def test_without_any_survivor_the_unscheduled_program_is_kept() -> None:
    dials = [(5, 3, 0), (5, 2, 0), (4, 3, 0), (4, 2, 0), (3, 3, 0)]
    verdict = verify_best(ranked(*dials), toy_start(), failing_in_full(*dials))
    assert verdict.candidate.program.steps == ()
    assert verdict.candidate.evaluation.speedup == 1.0
    assert len(verdict.checked) == len(dials)


def test_the_choice_is_by_the_full_measurement_and_the_report_is_a_new_one() -> None:
    evaluator = ToyEvaluator()
    flattered_first = ranked((1, 3, 0), (5, 3, 0), (4, 3, 0), (0, 1, 0))
    verdict = verify_best(flattered_first, toy_start(), evaluator, top=3)
    assert verdict.candidate.program.dials == (5, 3, 0)  # type: ignore[attr-defined]
    assert evaluator.calls == 3 + SESSIONS
    assert all(verdict.candidate is not checked for checked in verdict.checked)


def test_slower_than_the_unscheduled_program_is_never_the_winner() -> None:
    verdict = verify_best(ranked((0, 8, 0)), toy_start(), ToyEvaluator())
    assert verdict.candidate.program.ir_key == toy_start().ir_key


def test_noisy_measurements_are_asked_for_again() -> None:
    class NoisyTwice(ToyEvaluator):
        def evaluate(
            self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
        ) -> Evaluation:
            noisy = self.calls < 2
            self.verdict = lambda program, level: Status.NOISY if noisy else Status.PASSED
            return super().evaluate(program, level)

    verdict = verify_best(ranked((5, 3, 0)), toy_start(), NoisyTwice())
    assert verdict.candidate.evaluation.passed
    assert verdict.candidate.program.dials == (5, 3, 0)  # type: ignore[attr-defined]


class Moody(ToyEvaluator):
    """Every process measures what the script says: a speedup with ±1 %, or a verdict."""

    def __init__(self, *script: float | Status) -> None:
        super().__init__()
        self.script = script
        self.renewed = 0

    def renew(self) -> None:
        self.renewed += 1

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        assert fresh
        assert level is Level.FULL
        says = self.script[self.renewed - 1]
        self.verdict = lambda program, level: says if isinstance(says, Status) else Status.PASSED
        found = super().evaluate(program, level)
        if isinstance(says, Status):
            return found
        us = TimingStats(100.0 / says, 1.0, 1.0, 1.0, 20)
        measured = Measurement(us, us, says, (0.99 * says, 1.01 * says))
        return replace(found, measurement=measured)


def measured_by(*script: float | Status) -> tuple[Evaluation, Moody]:
    evaluator = Moody(*script)
    return evaluate_in_sessions(evaluator, toy_start()), evaluator


def test_the_number_is_that_of_the_median_process_and_its_interval_spans_all() -> None:
    found, evaluator = measured_by(10.2, 9.8, 10.0)
    assert evaluator.renewed == SESSIONS
    assert found.sessions == (10.2, 9.8, 10.0)
    assert found.measurement is not None
    assert found.measurement.speedup == 10.0
    assert found.measurement.candidate.lower_quartile_us == 10.0
    assert found.measurement.speedup_ci == pytest.approx((0.99 * 9.8, 1.01 * 10.2))


def test_one_process_that_is_far_off_is_outvoted_and_not_hidden() -> None:
    found, evaluator = measured_by(10.8, 18.7, 18.6, 18.8, 18.7)
    assert evaluator.renewed == MOST_SESSIONS
    assert found.speedup == 18.7
    assert found.measurement is not None
    assert found.measurement.speedup_ci[0] == pytest.approx(0.99 * 10.8)


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.CRASH, Status.SUSPECT])
@pytest.mark.parametrize("session", range(SESSIONS))
def test_what_fails_in_any_process_does_not_pass(status: Status, session: int) -> None:
    script: list[float | Status] = [10.0] * SESSIONS
    script[session] = status
    found, evaluator = measured_by(*script)
    assert (found.status, found.measurement, found.sessions) == (status, None, ())
    assert evaluator.renewed == session + 1


@pytest.mark.parametrize(
    ("script", "processes", "sessions"),
    [
        ((Status.NOISY, 9.9, 10.0, 10.1), 4, (9.9, 10.0, 10.1)),
        ((9.9, Status.NOISY, 10.0, Status.NOISY, 10.1), 5, (9.9, 10.0, 10.1)),
        ((10.0, 20.0, Status.NOISY, 10.1, 10.2), 5, (10.0, 20.0, 10.1, 10.2)),
    ],
)
def test_noisy_processes_are_made_up_for(
    script: tuple[float | Status, ...], processes: int, sessions: tuple[float, ...]
) -> None:
    found, evaluator = measured_by(*script)
    assert (found.status, found.sessions) == (Status.PASSED, sessions)
    assert evaluator.renewed == processes
    assert found.measurement is not None
    assert found.measurement.speedup_ci == pytest.approx(
        (0.99 * min(sessions), 1.01 * max(sessions))
    )


@pytest.mark.parametrize("measured", [(), (10.0,), (10.0, 10.1)])
@pytest.mark.parametrize("noisy_first", [True, False])
def test_fewer_processes_than_a_number_takes_give_no_number(
    measured: tuple[float, ...], noisy_first: bool
) -> None:
    noisy: list[float | Status] = [Status.NOISY] * (MOST_SESSIONS - len(measured))
    script = (*noisy, *measured) if noisy_first else (*measured, *noisy)
    found, evaluator = measured_by(*script)
    assert evaluator.renewed == MOST_SESSIONS
    assert (found.status, found.speedup) == (Status.NOISY, None)
    assert found.sessions == measured
    says = f"{len(measured)} of {MOST_SESSIONS} processes could be measured, and a number takes 3"
    assert found.message.startswith(says)
    assert "\n" not in found.message


@pytest.mark.parametrize("sessions", [2, 3, 4, 5, 7])
def test_as_many_processes_pass_as_were_asked_for(sessions: int) -> None:
    evaluator = Moody(Status.NOISY, Status.NOISY, *[10.0] * sessions)
    found = evaluate_in_sessions(evaluator, toy_start(), sessions)
    assert found.sessions == (10.0,) * sessions
    evaluator = Moody(*[Status.NOISY] * 20)
    assert evaluate_in_sessions(evaluator, toy_start(), sessions).status is Status.NOISY
    assert evaluator.renewed == max(MOST_SESSIONS, sessions + 2)


def test_a_wrong_result_after_noisy_processes_is_the_answer() -> None:
    found, _ = measured_by(10.0, Status.NOISY, Status.NOISY, Status.WRONG_RESULT)
    assert (found.status, found.sessions) == (Status.WRONG_RESULT, ())


def test_equal_speedups_are_told_apart_by_time() -> None:
    """The unscheduled program is 1.00x in every process; the process of median time is reported."""
    times = iter([300.0, 100.0, 200.0])

    class Slowing(ToyEvaluator):
        def evaluate(
            self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
        ) -> Evaluation:
            found = super().evaluate(program, level)
            us = TimingStats(next(times), 1.0, 1.0, 1.0, 20)
            return replace(found, measurement=Measurement(us, us, 1.0, (1.0, 1.0)))

    found = evaluate_in_sessions(Slowing(), toy_start())
    assert found.measurement is not None
    assert found.measurement.latency_us == 200.0


def test_sessions_are_of_what_is_right() -> None:
    with pytest.raises(InvalidValueError, match="sessions"):
        Evaluation(Status.WRONG_RESULT, "ir", sessions=(10.0,))


@pytest.mark.parametrize("sessions", [0, -1])
def test_no_sessions_are_refused(sessions: int) -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        evaluate_in_sessions(ToyEvaluator(), toy_start(), sessions)


def test_one_session_is_one_session_however_noisy() -> None:
    evaluator = Moody(Status.NOISY, 10.0)
    found = evaluate_in_sessions(evaluator, toy_start(), 1)
    assert (found.status, found.message, found.sessions) == (Status.NOISY, "bad", ())
    assert evaluator.renewed == 1
    one = evaluate_in_sessions(Moody(10.0), toy_start(), 1)
    assert (one.speedup, one.sessions, one.speedup_ci) == (10.0, (), (9.9, 10.1))


class Changing(ToyEvaluator):
    """Noisy where a dial stands at `loud`: always, or once it is measured in sessions."""

    def __init__(self, loud: tuple[int, ...], always: bool) -> None:
        super().__init__()
        self.loud, self.always, self.renewed = loud, always, False

    def renew(self) -> None:
        self.renewed = True

    def evaluate(
        self, program: Program, level: Level = Level.TRAINING, *, fresh: bool = False
    ) -> Evaluation:
        late = self.renewed or self.always
        self.verdict = lambda program, level: (
            Status.NOISY if late and program.dials[0] in self.loud else Status.PASSED
        )
        return super().evaluate(program, level)


@pytest.mark.parametrize("always", [True, False])
def test_a_winner_that_cannot_be_measured_gives_way_to_one_that_can(always: bool) -> None:
    verdict = verify_best(ranked((5, 3, 0), (4, 3, 0)), toy_start(), Changing((5,), always))
    assert verdict.candidate.evaluation.passed
    assert verdict.candidate.program.dials == (4, 3, 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("sessions", [1, 3])
def test_where_none_can_be_measured_nothing_is_claimed_about_any(
    always: bool, sessions: int
) -> None:
    """That the unscheduled program is the best was not shown either."""
    evaluator = Changing((4, 5), always)
    best, second, start = (5, 3, 0), (4, 3, 0), (0, 0, 0)
    verdict = verify_best(ranked(best, second, start), toy_start(), evaluator, sessions=sessions)
    assert verdict.candidate.program.dials == best  # type: ignore[attr-defined]
    assert verdict.candidate.evaluation.status is Status.NOISY
    assert verdict.candidate.evaluation.speedup is None


@pytest.mark.parametrize("always", [True, False])
def test_what_was_slower_before_it_was_noisy_costs_the_unscheduled_program_nothing(
    always: bool,
) -> None:
    slow, start = (1, 8, 0), (0, 0, 0)
    assert [c.evaluation.speedup < 1.0 for c in ranked(slow)] == [True]  # type: ignore[operator]
    verdict = verify_best(ranked(start, slow), toy_start(), Changing((1,), always))
    assert verdict.candidate.program.ir_key == toy_start().ir_key
    assert verdict.candidate.evaluation.speedup == 1.0


def test_the_unscheduled_program_is_measured_in_sessions_too() -> None:
    evaluator = failing_in_full((5, 3, 0))
    verdict = verify_best(ranked((5, 3, 0)), toy_start(), evaluator)
    assert verdict.candidate.evaluation.sessions == (1.0,) * SESSIONS
    alone = verify_best(ranked((5, 3, 0)), toy_start(), failing_in_full((5, 3, 0)), sessions=1)
    assert alone.candidate.evaluation.sessions == ()
