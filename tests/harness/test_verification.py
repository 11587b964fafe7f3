"""How the winner of a run is chosen and what is reported."""

from __future__ import annotations

from toy import ToyEvaluator, ToyProgram, toy_start

from tirgym.harness.agent import Candidate
from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.program import Program
from tirgym.harness.status import Status
from tirgym.harness.verification import verify_best


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
    assert evaluator.calls == 4
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
