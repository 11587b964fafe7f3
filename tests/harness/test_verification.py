"""How the winner of a run is chosen and what is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toy import ToyEvaluator, ToyProgram, toy_start

from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level, Measurement, TimingStats
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.verification import (
    MOST_SESSIONS,
    SESSIONS,
    evaluate_in_sessions,
    verify_best,
)


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


def test_noisy_processes_leave_fewer_to_choose_from() -> None:
    found, _ = measured_by(Status.NOISY, 9.9, 10.0)
    assert (found.speedup, found.sessions) == (9.9, (9.9, 10.0))
    only, _ = measured_by(Status.NOISY, Status.NOISY, 10.0)
    assert (only.speedup, only.sessions) == (10.0, ())
    none, evaluator = measured_by(*[Status.NOISY] * MOST_SESSIONS)
    assert (none.status, evaluator.renewed) == (Status.NOISY, MOST_SESSIONS)


def test_one_session_is_one_session_however_noisy() -> None:
    evaluator = Moody(Status.NOISY, 10.0)
    assert evaluate_in_sessions(evaluator, toy_start(), 1).status is Status.NOISY
    assert evaluator.renewed == 1
