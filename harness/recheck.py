"""`evaluate_fresh`: a verdict and a number that owe nothing to the store."""

from __future__ import annotations

from tirgym.harness.evaluation import Evaluation, Level
from tirgym.harness.evaluator import Evaluator
from tirgym.harness.program import Program
from tirgym.harness.status import Status

__all__ = ["evaluate_fresh"]

NOISY_RETRIES = 2


def evaluate_fresh(evaluator: Evaluator, program: Program) -> Evaluation:
    """`program` in full and anew, with new secret inputs; asked again while NOISY, three times."""
    evaluation = evaluator.evaluate(program, Level.FULL, fresh=True)
    for _ in range(NOISY_RETRIES):
        if evaluation.status is not Status.NOISY:
            break
        evaluation = evaluator.evaluate(program, Level.FULL, fresh=True)
    return evaluation
